#include "text/model_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status.h"

namespace baton::text {
namespace {

constexpr uintmax_t kMaxBytes = uintmax_t{1} << 30;

}  // namespace

absl::StatusOr<std::string> ReadModelFile(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (status.type() != std::filesystem::file_type::regular) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  if (size > kMaxBytes) return absl::InvalidArgumentError(absl::StrCat(path, ": over 1 GiB"));
  std::ifstream file(path, std::ios::binary);
  std::string content(size, '\0');
  if (!file.read(content.data(), static_cast<std::streamsize>(size))) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": can't read: ", std::strerror(errno)));
  }
  BATON_RETURN_IF_ERROR(RefuseLfsPointer(path, content));
  return content;
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace baton::text
