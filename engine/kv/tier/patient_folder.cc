#include "engine/kv/tier/patient_folder.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::kv::tier {
namespace {

absl::Status Hangs() { return absl::DeadlineExceededError("the folder's file system takes too long"); }

// State shared by the calls of one folder.
class Patience {
 public:
  explicit Patience(absl::Duration longest) : longest_(longest) {}

  // Returns the result of `work`, or nothing if it takes too long or an earlier one still does. It may go on
  // after that, so it owns what it touches.
  template <typename Result>
  static std::optional<Result> Run(const std::shared_ptr<Patience>& patience, std::function<Result()> work) {
    struct Call {
      absl::Mutex mutex;
      std::optional<Result> result ABSL_GUARDED_BY(mutex);
      bool left ABSL_GUARDED_BY(mutex) = false;
    };
    {
      absl::MutexLock lock(&patience->mutex_);
      if (patience->hanging_ > 0) return std::nullopt;
    }
    const auto call = std::make_shared<Call>();
    std::thread([patience, call, work = std::move(work)]() mutable {
      Result result = work();
      work = nullptr;  // before anyone can know that it is over
      absl::MutexLock lock(&call->mutex);
      call->result = std::move(result);
      if (!call->left) return;
      absl::MutexLock counting(&patience->mutex_);
      --patience->hanging_;
    }).detach();
    absl::MutexLock lock(&call->mutex);
    if (call->mutex.AwaitWithTimeout(
            absl::Condition(
                +[](std::optional<Result>* result) { return result->has_value(); }, &call->result),
            patience->longest_)) {
      return std::move(call->result);
    }
    call->left = true;
    absl::MutexLock counting(&patience->mutex_);
    ++patience->hanging_;
    return std::nullopt;
  }

 private:
  const absl::Duration longest_;
  absl::Mutex mutex_;
  int hanging_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that were left
};

template <typename Result>
Result Run(const std::shared_ptr<Patience>& patience, std::function<Result()> work) {
  std::optional<Result> result = Patience::Run<Result>(patience, std::move(work));
  return result.has_value() ? *std::move(result) : Result(Hangs());
}

class PatientFile final : public File {
 public:
  PatientFile(std::shared_ptr<Patience> patience, std::shared_ptr<File> file)
      : patience_(std::move(patience)), file_(std::move(file)), size_(file_->size()) {}
  // To close it may take long too.
  ~PatientFile() override {
    std::thread([file = std::move(file_)]() mutable { file = nullptr; }).detach();
  }

  int64_t size() const override { return size_; }

  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) override {
    const auto copy = std::make_shared<PageBuffer>(std::ssize(bytes));
    const auto status = Run<absl::Status>(
        patience_, [file = file_, offset, copy] { return file->ReadAt(offset, copy->bytes()); });
    if (status.ok()) std::copy_n(copy->bytes().begin(), bytes.size(), bytes.begin());
    return status;
  }

  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes) override {
    const auto copy = std::make_shared<PageBuffer>(std::ssize(bytes));
    std::copy(bytes.begin(), bytes.end(), copy->bytes().begin());
    return Run<absl::Status>(patience_,
                             [file = file_, offset, copy] { return file->WriteAt(offset, copy->bytes()); });
  }

  absl::Status Sync() override {
    return Run<absl::Status>(patience_, [file = file_] { return file->Sync(); });
  }

 private:
  const std::shared_ptr<Patience> patience_;
  std::shared_ptr<File> file_;
  const int64_t size_;
};

class PatientFolder final : public Folder {
 public:
  PatientFolder(std::shared_ptr<Patience> patience, std::shared_ptr<Folder> folder)
      : patience_(std::move(patience)), folder_(std::move(folder)) {}

  absl::StatusOr<std::vector<std::string>> List() override {
    return Run<absl::StatusOr<std::vector<std::string>>>(patience_,
                                                         [folder = folder_] { return folder->List(); });
  }
  absl::StatusOr<std::shared_ptr<File>> Create(const std::string& name, int64_t bytes) override {
    return Wrap([folder = folder_, name, bytes] { return folder->Create(name, bytes); });
  }
  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& name) override {
    return Wrap([folder = folder_, name] { return folder->Open(name); });
  }
  absl::Status Remove(const std::string& name) override {
    return Run<absl::Status>(patience_, [folder = folder_, name] { return folder->Remove(name); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Run<absl::Status>(patience_, [folder = folder_, from, to] { return folder->Rename(from, to); });
  }
  absl::StatusOr<FileInfo> Look(const std::string& name) override {
    return Run<absl::StatusOr<FileInfo>>(patience_, [folder = folder_, name] { return folder->Look(name); });
  }
  absl::Status Touch(const std::string& name) override {
    return Run<absl::Status>(patience_, [folder = folder_, name] { return folder->Touch(name); });
  }

 private:
  using Opened = absl::StatusOr<std::shared_ptr<File>>;
  Opened Wrap(std::function<Opened()> open) {
    Opened file = Run<Opened>(patience_, std::move(open));
    if (!file.ok()) return file;
    return std::make_shared<PatientFile>(patience_, *std::move(file));
  }

  const std::shared_ptr<Patience> patience_;
  const std::shared_ptr<Folder> folder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Folder>> OpenPatiently(
    std::function<absl::StatusOr<std::unique_ptr<Folder>>()> open, absl::Duration patience) {
  const auto shared = std::make_shared<Patience>(patience);
  auto folder = Run<absl::StatusOr<std::unique_ptr<Folder>>>(shared, std::move(open));
  if (!folder.ok()) return folder.status();
  return std::make_unique<PatientFolder>(shared, *std::move(folder));
}

}  // namespace baton::kv::tier
