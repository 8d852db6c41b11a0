#include "cli/key/tenants_append.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "router/tenancy/tenants_file.h"
#include "text/config/json_fields.h"

namespace baton::cli {

absl::StatusOr<std::string> AppendKey(std::string_view text, const std::string& file,
                                      const std::string& tenant, const router::NewApiKey& key) {
  using Json = nlohmann::ordered_json;
  Json root = {{"tenants", Json::array()}};
  if (!text.empty()) {
    BATON_RETURN_IF_ERROR(router::ParseTenants(text, file).status());
    root = Json::parse(text);
  }
  Json* found = nullptr;
  for (Json& one : root["tenants"]) {
    if (one["name"] == tenant) found = &one;
  }
  if (found == nullptr) {
    root["tenants"].push_back({{"name", tenant}});
    found = &root["tenants"].back();
  }
  Json& keys = (*found)["keys"];
  if (keys.is_null()) keys = Json::array();
  keys.push_back({{"id", key.id}, {"sha256", key.sha256}});
  std::string changed = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  // The name may be one that no router takes.
  BATON_RETURN_IF_ERROR(router::ParseTenants(changed, file).status());
  return changed;
}

absl::StatusOr<std::string> ReadTenants(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error) && !error) return std::string();
  return model::ReadTextFile(file, router::kMaxTenantsFileBytes);
}

absl::Status ReplaceTenants(const std::string& file, const std::string& text) {
  // Replaces the target of a link, not the link.
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(file, error);
  if (error) return absl::UnavailableError(fmt::format("{}: {}", file, error.message()));
  struct stat old = {};
  const mode_t mode = stat(path.c_str(), &old) == 0 ? old.st_mode & 07777 : 0600;
  const std::string draft = path.string() + ".new";
  const int descriptor = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0 && errno == EEXIST) {
    return absl::AlreadyExistsError(fmt::format(
        "{} exists: another process is changing the file, or was interrupted; remove it in the latter case",
        draft));
  }
  if (descriptor < 0) return absl::ErrnoToStatus(errno, fmt::format("{}: can't be created", draft));
  bool done = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  done = fchmod(descriptor, mode) == 0 && done;
  done = fsync(descriptor) == 0 && done;
  done = close(descriptor) == 0 && done;
  if (done && std::rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int why = errno;
  unlink(draft.c_str());
  return absl::ErrnoToStatus(why, fmt::format("{}: can't be written", file));
}

}  // namespace baton::cli
