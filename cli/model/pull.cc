#include "cli/model/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <span>

#include "cli/model/curl.h"
#include "common/base/digest.h"
#include "common/base/secret.h"
#include "common/base/status.h"
#include "text/config/json_fields.h"
#include "text/gguf/document.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxListingBytes = 16 << 20;
constexpr size_t kReadBytes = 1 << 20;

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

using gguf::IsGguf;

// A model in several files is not read.
bool IsGgufPart(std::string_view name) {
  static const std::regex kPart("-[0-9]{5}-of-[0-9]{5}[.]gguf$");
  return std::regex_search(name.begin(), name.end(), kPart);
}

// Weights, configurations, tokenizer, chat template. Other formats of the same weights stay where they are,
// and so do folders within the repository.
bool IsRead(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEndings = {".safetensors", ".json", ".jinja", ".gguf"};
  return IsPlainName(name) && std::any_of(kEndings.begin(), kEndings.end(),
                                          [&](std::string_view end) { return name.ends_with(end); });
}

absl::StatusOr<std::string> DigestOf(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  Sha256 hash;
  std::string bytes(kReadBytes, '\0');
  while (stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || stream.gcount() > 0) {
    hash.Update(std::string_view(bytes.data(), static_cast<size_t>(stream.gcount())));
  }
  if (!stream.eof()) return absl::UnavailableError(fmt::format("{}: can't be read", file.string()));
  const Sha256Digest digest = hash.Finish();
  return ToHex(std::as_bytes(std::span(digest)));
}

absl::StatusOr<Listing> List(const PullOptions& options) {
  const fs::path file = fs::path(options.folder) / ".listing.json";
  std::error_code error;
  fs::remove(file, error);
  const absl::Status status =
      Curl({.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options.endpoint,
                               options.repository, options.revision),
            .file = file.string(),
            .token = options.token});
  if (!status.ok()) {
    return absl::Status(status.code(),
                        fmt::format("{}: is there such a repository and revision, and is it public? "
                                    "--token-file is for those that ask for a token",
                                    std::string(status.message())));
  }
  const absl::StatusOr<std::string> text = model::ReadTextFile(file.string(), kMaxListingBytes);
  fs::remove(file, error);
  BATON_RETURN_IF_ERROR(text.status());
  return ParseListing(*text, options.file);
}

// Returns the file's SHA-256.
absl::StatusOr<std::string> Fetch(const PullOptions& options, const std::string& commit,
                                  const RemoteFile& remote,
                                  const std::function<void(const std::string&)>& say) {
  const fs::path file = fs::path(options.folder) / remote.name;
  const fs::path part = file.string() + ".part";
  std::error_code error;
  if (!remote.sha256.empty() && fs::exists(file, error)) {
    BATON_ASSIGN_OR_RETURN(const std::string there, DigestOf(file));
    if (there == remote.sha256) {
      say(remote.name + " is up to date");
      return there;
    }
  }
  // Only a file with a stated checksum can be continued: the part may be of another revision.
  if (remote.sha256.empty()) fs::remove(part, error);
  say(remote.name);
  const bool whole =
      !remote.sha256.empty() && fs::exists(part, error) && DigestOf(part).value_or("") == remote.sha256;
  if (!whole) {
    BATON_RETURN_IF_ERROR(Curl(
        {.url = fmt::format("{}/{}/resolve/{}/{}", options.endpoint, options.repository, commit, remote.name),
         .file = part.string(),
         .token = options.token,
         .progress = options.progress}));
  }
  BATON_ASSIGN_OR_RETURN(std::string digest, DigestOf(part));
  if (!remote.sha256.empty() && digest != remote.sha256) {
    fs::remove(part, error);
    return absl::DataLossError(fmt::format("{} came with SHA-256 {}, and {} states {}: pull again",
                                           remote.name, digest, options.endpoint, remote.sha256));
  }
  fs::rename(part, file, error);
  if (error)
    return absl::UnavailableError(fmt::format("{}: can't be written: {}", file.string(), error.message()));
  return digest;
}

// Leaves the files of the model that is asked for.
absl::Status Choose(std::string_view file, std::vector<RemoteFile>& files) {
  std::string ggufs;
  for (const RemoteFile& one : files) {
    if (!IsGguf(one.name) || IsGgufPart(one.name)) continue;
    ggufs += fmt::format("{}{}", ggufs.empty() ? "" : ", ", one.name);
  }
  const auto is_weights = [](const RemoteFile& one) { return one.name.ends_with(".safetensors"); };
  if (!file.empty()) {
    std::erase_if(files, [&](const RemoteFile& one) { return one.name != file; });
    if (!files.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("the repository has no {}; its GGUF files: {}", file,
                                                  ggufs.empty() ? "none that Baton reads" : ggufs));
  }
  std::erase_if(files, [](const RemoteFile& one) { return IsGguf(one.name); });
  if (std::ranges::any_of(files, is_weights)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      ggufs.empty()
          ? "the repository has neither *.safetensors nor a model in one *.gguf: Baton reads no "
            "other weights"
          : fmt::format("the repository has no *.safetensors: choose a GGUF file with --file: {}", ggufs));
}

}  // namespace

absl::StatusOr<Listing> ParseListing(std::string_view json, std::string_view file_asked) {
  constexpr char kWhere[] = "the server's list of files";
  BATON_ASSIGN_OR_RETURN(const model::Json root, model::ParseJson(json, kWhere));
  if (!root.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", kWhere));
  model::JsonFields fields(root, kWhere);
  Listing listing;
  listing.commit = fields.Text("sha");
  BATON_RETURN_IF_ERROR(fields.status());
  const model::Json* files = fields.Find("siblings");
  // Both become parts of addresses and names of files.
  if (!IsPlainName(listing.commit) || files == nullptr || !files->is_array()) {
    return absl::InvalidArgumentError(fmt::format("{}: not in Hugging Face's format", kWhere));
  }
  for (const model::Json& one : *files) {
    if (!one.is_object() || !one.contains("rfilename") || !one["rfilename"].is_string()) continue;
    RemoteFile file = {.name = one["rfilename"].get<std::string>(), .sha256 = ""};
    if (!IsRead(file.name)) continue;
    if (one.contains("lfs") && one["lfs"].is_object() && one["lfs"].contains("sha256") &&
        one["lfs"]["sha256"].is_string()) {
      file.sha256 = one["lfs"]["sha256"].get<std::string>();
    }
    listing.files.push_back(std::move(file));
  }
  BATON_RETURN_IF_ERROR(Choose(file_asked, listing.files));
  return listing;
}

absl::Status CheckPull(const PullOptions& options) {
  const size_t slash = options.repository.find('/');
  if (slash == std::string::npos || !IsPlainName(options.repository.substr(0, slash)) ||
      !IsPlainName(options.repository.substr(slash + 1))) {
    return absl::InvalidArgumentError(fmt::format(
        "\"{}\" is not a repository: use OWNER/NAME, for example Qwen/Qwen3-0.6B", options.repository));
  }
  if (!IsPlainName(options.revision)) {
    return absl::InvalidArgumentError(
        fmt::format("--revision: \"{}\" is not a branch, a tag or a commit", options.revision));
  }
  if (!options.file.empty() && (!IsPlainName(options.file) || !IsGguf(options.file))) {
    return absl::InvalidArgumentError(
        fmt::format("--file: \"{}\" is not the name of a GGUF file of the repository itself", options.file));
  }
  if (IsGgufPart(options.file)) {
    return absl::InvalidArgumentError(fmt::format(
        "--file: {} is one of several parts, and a model in several GGUF files is not read: merge "
        "them into one",
        options.file));
  }
  if (!options.endpoint.starts_with("https://") && !options.endpoint.starts_with("http://")) {
    return absl::InvalidArgumentError(fmt::format(
        "--endpoint: \"{}\" is not a server: use for example https://huggingface.co", options.endpoint));
  }
  return absl::OkStatus();
}

absl::StatusOr<Pulled> Pull(const PullOptions& options, const std::function<void(const std::string&)>& say) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) return absl::UnavailableError(fmt::format("can't make {}: {}", options.folder, error.message()));
  const absl::StatusOr<Listing> found = List(options);
  if (!found.ok()) {
    fs::remove(options.folder, error);  // if there is nothing in it
    return found.status();
  }
  const Listing& listing = *found;
  Pulled pulled;
  pulled.commit = listing.commit;
  for (const RemoteFile& file : listing.files) {
    BATON_ASSIGN_OR_RETURN(pulled.sha256[file.name], Fetch(options, listing.commit, file, say));
  }
  return pulled;
}

std::string ChartValues(const PullOptions& options, const Pulled& pulled) {
  // Quoted: YAML takes a digest of digits alone for a number.
  const std::string name =
      (options.file.empty() ? fs::path(options.repository).filename() : fs::path(options.file).stem())
          .string();
  const std::string file = options.file.empty() ? "" : fmt::format("  file: \"{}\"\n", options.file);
  std::string yaml = fmt::format(
      "model:\n  name: \"{}\"\n{}  source: huggingFace\n  huggingFace:\n    endpoint: \"{}\"\n"
      "    repository: \"{}\"\n    revision: \"{}\"\n    files:\n",
      name, file, options.endpoint, options.repository, pulled.commit);
  for (const auto& [each, sha256] : pulled.sha256) yaml += fmt::format("      {}: \"{}\"\n", each, sha256);
  return yaml;
}

}  // namespace baton::cli
