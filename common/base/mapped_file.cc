#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

namespace baton {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const auto failed = [&path](std::string_view doing) {
    const int error = errno;
    const std::string message =
        fmt::format("{}: {}: {}", path, doing, std::generic_category().message(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("can't be opened");
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(fmt::format("{}: not a regular file", path));
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) {  // can't be mapped
    close(fd);
    return MappedFile({});
  }
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) {
    const absl::Status status = failed("can't be mapped");
    close(fd);
    return status;
  }
  close(fd);
  return MappedFile(std::span(static_cast<const std::byte*>(memory), size));
}

void MappedFile::WillRead() const {
  if (!bytes_.empty()) madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace baton
