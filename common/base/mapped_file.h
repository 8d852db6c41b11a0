// MappedFile: the bytes of a file, mapped read-only, so that only the parts that are read take memory. The
// file must not shrink while it is mapped. Owned by whoever opened it; immutable, any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

class MappedFile {
 public:
  // Messages name `path`. NOT_FOUND if there is no such file, INVALID_ARGUMENT if it is not a regular file,
  // UNAVAILABLE if it can't be opened or mapped.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Says that all of it will be read soon: the system may begin to.
  void WillRead() const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;  // empty: nothing is mapped
};

}  // namespace baton
