#include "engine/kv/tier/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "engine/kv/tier/record.h"

namespace baton::kv::tier {
namespace {

constexpr char kLockName[] = "lock";

absl::Status Failure(const std::string& name, const char* doing) {
  const int error = errno;
  const std::string message = fmt::format("{}: {}: {}", name, doing, std::generic_category().message(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  if (error == ENOENT) return absl::NotFoundError(message);
  return absl::UnavailableError(message);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class PosixFile final : public File {
 public:
  PosixFile(std::string name, Descriptor fd, int64_t size)
      : name_(std::move(name)), fd_(std::move(fd)), size_(size) {}

  int64_t size() const override { return size_; }

  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t done = pread(fd_.get(), bytes.data(), bytes.size(), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return Failure(name_, "can't be read");
      if (done == 0) return absl::DataLossError(fmt::format("{} ends at {}", name_, offset));
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += done;
    }
    return absl::OkStatus();
  }

  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t done = pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return Failure(name_, "can't be written");
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += done;
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return fsync(fd_.get()) == 0 ? absl::OkStatus() : Failure(name_, "can't be synced");
  }

 private:
  const std::string name_;
  const Descriptor fd_;
  const int64_t size_;
};

class PosixFolder final : public Folder {
 public:
  PosixFolder(std::string path, Descriptor folder, Descriptor lock, bool direct)
      : path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)), direct_(direct) {}

  absl::StatusOr<std::vector<std::string>> List() override {
    const int again = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const entries = again < 0 ? nullptr : fdopendir(again);
    if (entries == nullptr) {
      const absl::Status failure = Failure(path_, "can't be listed");
      if (again >= 0) close(again);
      return failure;
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(entries)) {
      const std::string name = entry->d_name;
      if (name != "." && name != ".." && name != kLockName) names.push_back(name);
    }
    closedir(entries);
    return names;
  }

  absl::StatusOr<std::shared_ptr<File>> Create(const std::string& name, int64_t bytes) override {
    auto fd = OpenFile(name, O_RDWR | O_CREAT | O_EXCL);
    if (!fd.ok()) return fd.status();
    // Room is taken now, so that a full disk is known before anything is written. Where the file system
    // can't, the file is as long all the same.
    const bool reserved = fallocate(fd->get(), 0, 0, bytes) == 0;
    if ((!reserved && errno != EOPNOTSUPP && errno != ENOSYS) ||
        (!reserved && ftruncate(fd->get(), bytes) != 0)) {
      absl::Status failure = Failure(name, "no room can be had for it");
      (void)unlinkat(folder_.get(), name.c_str(), 0);
      return failure;
    }
    return std::make_shared<PosixFile>(path_ + "/" + name, *std::move(fd), bytes);
  }

  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& name) override {
    auto fd = OpenFile(name, O_RDWR);
    if (!fd.ok()) return fd.status();
    struct stat info {};
    if (fstat(fd->get(), &info) != 0) return Failure(name, "can't be looked at");
    if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(name + " is no file");
    return std::make_shared<PosixFile>(path_ + "/" + name, *std::move(fd), info.st_size);
  }

  absl::Status Remove(const std::string& name) override {
    return unlinkat(folder_.get(), name.c_str(), 0) == 0 ? absl::OkStatus()
                                                         : Failure(name, "can't be removed");
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return renameat(folder_.get(), from.c_str(), folder_.get(), to.c_str()) == 0
               ? absl::OkStatus()
               : Failure(from, "can't be renamed");
  }

  absl::StatusOr<FileInfo> Look(const std::string& name) override {
    struct stat info {};
    if (fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return Failure(name, "can't be looked at");
    }
    if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(name + " is no file");
    return FileInfo{.bytes = info.st_size, .modified = absl::TimeFromTimespec(info.st_mtim)};
  }

  absl::Status Touch(const std::string& name) override {
    return utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0
               ? absl::OkStatus()
               : Failure(name, "can't be touched");
  }

 private:
  absl::StatusOr<Descriptor> OpenFile(const std::string& name, int flags) {
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    if (direct_.load()) {
      Descriptor fd(openat(folder_.get(), name.c_str(), flags | O_DIRECT, 0600));
      if (fd.get() >= 0) return fd;
      if (errno != EINVAL) return Failure(name, "can't be opened");
      direct_.store(false);
      // It may have been made before it was refused.
      if ((flags & O_EXCL) != 0) (void)unlinkat(folder_.get(), name.c_str(), 0);
    }
    Descriptor fd(openat(folder_.get(), name.c_str(), flags, 0600));
    if (fd.get() < 0) return Failure(name, "can't be opened");
    return fd;
  }

  const std::string path_;
  const Descriptor folder_, lock_;
  std::atomic<bool> direct_;  // wanted, and the file system has not refused O_DIRECT
};

}  // namespace

PageBuffer::PageBuffer(int64_t bytes)
    : size_(bytes), bytes_(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<size_t>(bytes)))) {
  BATON_CHECK(bytes > 0 && bytes % kPage == 0 && bytes_ != nullptr) << bytes << " bytes";
}

void PageBuffer::Free::operator()(std::byte* bytes) const { std::free(bytes); }

absl::StatusOr<std::unique_ptr<Folder>> OpenPosixFolder(const std::string& path, FolderUse use) {
  std::error_code unmade;  // what can't be made, the next line says
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), unmade);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Failure(path, "can't be made");
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return Failure(path, "can't be opened as a folder (links are not followed)");
  struct stat info {};
  if (fstat(folder.get(), &info) != 0) return Failure(path, "can't be looked at");
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: it belongs to user {} and has mode {:o}: KV blocks hold what clients wrote, so they are kept "
        "only "
        "in a folder of this process's user {} with mode 700; name one that is not there yet, and it is made",
        path, info.st_uid, info.st_mode & 07777, geteuid()));
  }
  if (use == FolderUse::kShared) {
    return std::make_unique<PosixFolder>(path, std::move(folder), Descriptor(-1), /*direct=*/false);
  }
  Descriptor lock(openat(folder.get(), kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) return Failure(path + "/" + kLockName, "can't be opened");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failure(path, "can't be locked");
    return absl::FailedPreconditionError(
        fmt::format("{}: another worker uses it: give each worker a folder of its own", path));
  }
  return std::make_unique<PosixFolder>(path, std::move(folder), std::move(lock), /*direct=*/true);
}

}  // namespace baton::kv::tier
