#include "tests/fakes/faulty_folder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace baton::kv::tier {
namespace {

absl::Status Dead() { return absl::UnavailableError("the process is dead"); }

// True if a change still happens; false: this is the last one, and it is torn.
bool Happens(Faults& faults) {
  if (faults.changes_left < 0) return true;
  return faults.changes_left-- > 0;
}

class FaultyFile final : public File {
 public:
  FaultyFile(std::shared_ptr<File> file, Faults& faults) : file_(std::move(file)), faults_(faults) {}
  int64_t size() const override { return file_->size(); }

  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) override {
    faults_.on_read();
    if (faults_.dead) return Dead();
    if (faults_.bad_reads > 0) {
      --faults_.bad_reads;
      return absl::UnavailableError("a bad sector");
    }
    absl::Status read = file_->ReadAt(offset, bytes);
    if (read.ok() && faults_.flipped_reads > 0) {
      --faults_.flipped_reads;
      bytes[bytes.size() / 3] ^= std::byte{4};
    }
    return read;
  }

  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes) override {
    faults_.on_write();
    if (faults_.dead) return Dead();
    if (faults_.full) return absl::ResourceExhaustedError("the disk is full");
    if (faults_.bad_writes > 0) {
      --faults_.bad_writes;
      return absl::UnavailableError("a bad sector");
    }
    if (Happens(faults_)) return file_->WriteAt(offset, bytes);
    (void)file_->WriteAt(offset, bytes.first(std::min<size_t>(bytes.size(), faults_.torn_bytes)));
    faults_.dead = true;
    faults_.die();
    return Dead();
  }
  absl::Status Sync() override { return faults_.dead ? Dead() : file_->Sync(); }

 private:
  const std::shared_ptr<File> file_;
  Faults& faults_;
};

class FaultyFolder final : public Folder {
 public:
  FaultyFolder(std::unique_ptr<Folder> folder, Faults& faults)
      : folder_(std::move(folder)), faults_(faults) {}

  absl::StatusOr<std::vector<std::string>> List() override { return folder_->List(); }
  absl::StatusOr<std::shared_ptr<File>> Create(const std::string& name, int64_t bytes) override {
    if (faults_.dead) return Dead();
    if (faults_.full) return absl::ResourceExhaustedError("the disk is full");
    if (!Happens(faults_)) {
      // Made, and without a header.
      (void)folder_->Create(name, bytes);
      faults_.dead = true;
      faults_.die();
      return Dead();
    }
    return Wrap(folder_->Create(name, bytes));
  }
  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& name) override {
    return Wrap(folder_->Open(name));
  }
  absl::Status Remove(const std::string& name) override {
    if (faults_.dead) return Dead();
    if (Happens(faults_)) return folder_->Remove(name);
    faults_.dead = true;
    faults_.die();
    return Dead();
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (faults_.dead) return Dead();
    if (Happens(faults_)) return folder_->Rename(from, to);
    faults_.dead = true;
    faults_.die();
    return Dead();
  }
  absl::StatusOr<FileInfo> Look(const std::string& name) override { return folder_->Look(name); }
  absl::Status Touch(const std::string& name) override { return folder_->Touch(name); }

 private:
  absl::StatusOr<std::shared_ptr<File>> Wrap(absl::StatusOr<std::shared_ptr<File>> file) {
    if (!file.ok()) return file;
    return std::make_shared<FaultyFile>(*std::move(file), faults_);
  }

  const std::unique_ptr<Folder> folder_;
  Faults& faults_;
};

class MemoryFile final : public File {
 public:
  MemoryFile(std::shared_ptr<MemoryDisk::Bytes> file, std::atomic<int64_t>& changes)
      : file_(std::move(file)), changes_(changes) {}
  int64_t size() const override {
    absl::MutexLock lock(&file_->mutex);
    return static_cast<int64_t>(file_->bytes.size());
  }
  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) override {
    absl::MutexLock lock(&file_->mutex);
    const auto at = static_cast<size_t>(offset);
    if (at + bytes.size() > file_->bytes.size()) return absl::DataLossError("beyond the end");
    std::memcpy(bytes.data(), file_->bytes.data() + at, bytes.size());
    return absl::OkStatus();
  }
  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes) override {
    absl::MutexLock lock(&file_->mutex);
    const auto at = static_cast<size_t>(offset);
    if (at + bytes.size() > file_->bytes.size()) return absl::DataLossError("beyond the end");
    if (!bytes.empty()) std::memcpy(file_->bytes.data() + at, bytes.data(), bytes.size());
    file_->modified = ++changes_;
    return absl::OkStatus();
  }
  absl::Status Sync() override { return absl::OkStatus(); }

 private:
  const std::shared_ptr<MemoryDisk::Bytes> file_;
  std::atomic<int64_t>& changes_;  // of the disk
};

}  // namespace

std::unique_ptr<Folder> MakeFaultyFolder(std::unique_ptr<Folder> folder, Faults& faults) {
  return std::make_unique<FaultyFolder>(std::move(folder), faults);
}

class MemoryDisk::MemoryFolder final : public Folder {
 public:
  explicit MemoryFolder(MemoryDisk& disk) : disk_(disk) {}
  absl::StatusOr<std::vector<std::string>> List() override {
    std::vector<std::string> names;
    for (const auto& [name, file] : disk_.files_) names.push_back(name);
    return names;
  }
  absl::StatusOr<std::shared_ptr<File>> Create(const std::string& name, int64_t bytes) override {
    auto& file = disk_.files_[name];
    if (file != nullptr) return absl::UnavailableError(name + " is there already");
    file = std::make_shared<Bytes>();
    file->bytes.resize(static_cast<size_t>(bytes));
    file->modified = ++disk_.changes_;
    return std::make_shared<MemoryFile>(file, disk_.changes_);
  }
  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& name) override {
    const auto found = disk_.files_.find(name);
    if (found == disk_.files_.end()) return absl::NotFoundError(name);
    return std::make_shared<MemoryFile>(found->second, disk_.changes_);
  }
  absl::Status Remove(const std::string& name) override {
    return disk_.files_.erase(name) > 0 ? absl::OkStatus() : absl::NotFoundError(name);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    auto file = disk_.files_.extract(from);
    if (file.empty()) return absl::NotFoundError(from);
    disk_.files_[to] = std::move(file.mapped());
    return absl::OkStatus();
  }
  absl::StatusOr<FileInfo> Look(const std::string& name) override {
    const auto found = disk_.files_.find(name);
    if (found == disk_.files_.end()) return absl::NotFoundError(name);
    return FileInfo{.bytes = MemoryFile(found->second, disk_.changes_).size(),
                    .modified = absl::FromUnixNanos(found->second->modified)};
  }
  absl::Status Touch(const std::string& name) override {
    const auto found = disk_.files_.find(name);
    if (found == disk_.files_.end()) return absl::NotFoundError(name);
    found->second->modified = ++disk_.changes_;
    return absl::OkStatus();
  }

 private:
  MemoryDisk& disk_;
};

std::unique_ptr<Folder> MemoryDisk::OpenFolder() { return std::make_unique<MemoryFolder>(*this); }

int64_t MemoryDisk::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, file] : files_) bytes += static_cast<int64_t>(file->bytes.size());
  return bytes;
}

}  // namespace baton::kv::tier
