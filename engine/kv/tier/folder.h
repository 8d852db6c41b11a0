// Folder: the files of one folder, as the tiers need them: created whole, read and written at page
// boundaries, renamed, removed. One level deep: PosixFolder here, one that never waits long
// (patient_folder.h), and the folders of the tests that fail, tear and forget. Calls wait for the disk. Any
// thread; a File may be in use while its name is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::kv::tier {

class File {
 public:
  virtual ~File() = default;
  virtual int64_t size() const = 0;
  // All of the bytes, or an error: DATA_LOSS beyond the end, RESOURCE_EXHAUSTED if the disk is full,
  // UNAVAILABLE otherwise. Memory, offset and size are multiples of a page.
  virtual absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) = 0;
  virtual absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes) = 0;
  // On return, written bytes are visible to other machines and durable.
  virtual absl::Status Sync() = 0;
};

struct FileInfo {
  int64_t bytes = 0;
  absl::Time modified;  // or touched, by the clock of the file system
};

class Folder {
 public:
  virtual ~Folder() = default;
  // Names of its files, in no order.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // A new file with room for `bytes`, of zeros. RESOURCE_EXHAUSTED: the disk is full.
  virtual absl::StatusOr<std::shared_ptr<File>> Create(const std::string& name, int64_t bytes) = 0;
  virtual absl::StatusOr<std::shared_ptr<File>> Open(const std::string& name) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  // In one step: whoever opens `to` finds all of the file, or what had that name before.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // NOT_FOUND: there is no such file, as with Open and Remove.
  virtual absl::StatusOr<FileInfo> Look(const std::string& name) = 0;
  // It counts as modified now.
  virtual absl::Status Touch(const std::string& name) = 0;
};

// Memory that starts and ends at a page: what files are read into and written from.
class PageBuffer {
 public:
  explicit PageBuffer(int64_t bytes);
  std::span<std::byte> bytes() { return {bytes_.get(), static_cast<size_t>(size_)}; }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  int64_t size_;
  std::unique_ptr<std::byte[], Free> bytes_;
};

// kAlone: this process's alone, locked until the Folder is destroyed or the process ends, however it ends;
// files bypass the page cache (O_DIRECT) where the file system can do that. kShared: other processes and
// machines have it open too.
enum class FolderUse { kAlone, kShared };

// The folder at `path`, made with mode 0700 if it is not there, and those above it. FAILED_PRECONDITION:
// another process has it alone, or others than this process's user own it or may look into it. Links are not
// followed.
absl::StatusOr<std::unique_ptr<Folder>> OpenPosixFolder(const std::string& path,
                                                        FolderUse use = FolderUse::kAlone);

}  // namespace baton::kv::tier
