#include "text/config/model_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "text/gguf/document.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;

// OWNER/NAME, as model hubs have it.
bool IsHubName(std::string_view path) {
  const size_t slash = path.find('/');
  const auto name = [](std::string_view part) {
    return !part.empty() && absl::ascii_isalnum(static_cast<unsigned char>(part.front())) &&
           std::ranges::all_of(part, [](unsigned char byte) {
             return absl::ascii_isalnum(byte) || byte == '-' || byte == '_' || byte == '.';
           });
  };
  return slash != std::string_view::npos && name(path.substr(0, slash)) && name(path.substr(slash + 1));
}

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The names of GGUF files in a folder, in order.
std::vector<std::string> GgufFiles(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (gguf::IsGguf(at->path().string())) names.push_back(at->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

std::string WhyNoModel(const fs::path& folder) {
  if (const auto files = GgufFiles(folder); !files.empty()) {
    return fmt::format("a folder with GGUF files: name one of them, as {}",
                       (folder / files.front()).string());
  }
  if (Exists(folder / "adapter_config.json")) return "an adapter, not a model: merge it into its model first";
  if (Exists(folder / "snapshots")) {
    return "a cache of Hugging Face's library: name the folder under its snapshots/, which has the "
           "config.json";
  }
  if (Exists(folder / "params.json")) {
    return "it has a params.json and no config.json: take the model in the format of transformers";
  }
  return "no model folder: it has no config.json";
}

}  // namespace

absl::Status CheckModelPath(const std::string& path) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  if (folder ? Exists(fs::path(path) / "config.json") : Exists(path) && gguf::IsGguf(path)) {
    return absl::OkStatus();
  }
  if (folder) return absl::NotFoundError(fmt::format("{}: {}", path, WhyNoModel(path)));
  if (Exists(path)) {
    return absl::NotFoundError(
        fmt::format("{}: neither a model's folder nor a GGUF file, whose name ends in .gguf", path));
  }
  if (!IsHubName(path)) {
    return absl::NotFoundError(
        fmt::format("{}: there is no such file or folder: name a model's folder, or a GGUF file", path));
  }
  const std::string name = path.substr(path.find('/') + 1);
  return absl::NotFoundError(fmt::format(
      "{}: there is no such folder here. `baton model pull {}` fetches the model of that name from "
      "huggingface.co into the folder {}: name that then",
      path, path, name));
}

std::string WhyNothingIsAt(const std::string& path) {
  return Exists(path) ? "" : std::string(CheckModelPath(path).message());
}

}  // namespace baton::model
