#include "common/base/lfs_pointer.h"

#include <fmt/format.h>

namespace baton {

absl::Status RefuseLfsPointer(std::string_view path, std::string_view content) {
  if (!content.starts_with("version https://git-lfs.github.com/")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: only a Git LFS pointer to the file is here: run `git lfs pull` in its folder", path));
}

absl::Status RefuseLfsPointer(std::string_view path, std::span<const std::byte> content) {
  return RefuseLfsPointer(path,
                          std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
}

}  // namespace baton
