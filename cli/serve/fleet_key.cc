#include "cli/serve/fleet_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/base/secret.h"

namespace baton::cli {
namespace {

constexpr size_t kKeyBytes = 32;

}  // namespace

absl::StatusOr<FleetKey> FleetKey::Make() {
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return absl::UnavailableError(fmt::format("no folder for temporary files: {}", error.message()));
  // mkdtemp makes it for its owner alone.
  std::string folder = (temporary / "baton-serve-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, fmt::format("can't make {} for the fleet's key (TMPDIR)", folder));
  }
  FleetKey key;
  key.file_ = folder + "/fleet.key";
  const std::string text = RandomHex(kKeyBytes) + "\n";
  const int file = open(key.file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, fmt::format("can't make {}", key.file_));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(file) != 0 || !written)
    return absl::ErrnoToStatus(errno, fmt::format("can't write {}", key.file_));
  return key;
}

FleetKey::FleetKey(FleetKey&& other) noexcept : file_(std::exchange(other.file_, "")) {}

FleetKey& FleetKey::operator=(FleetKey&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

FleetKey::~FleetKey() {
  if (file_.empty()) return;
  std::error_code error;
  std::filesystem::remove(file_, error);
  std::filesystem::remove(std::filesystem::path(file_).parent_path(), error);
}

}  // namespace baton::cli
