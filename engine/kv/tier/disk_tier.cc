#include "engine/kv/tier/disk_tier.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "spdlog/spdlog.h"

namespace baton::kv::tier {
namespace {

// A mid-size disk, until it was measured.
constexpr double kFirstSeconds = 2e-4, kFirstBytesPerSecond = 1e9;
// Writes wait where requests do not.
constexpr int kWriterNiceness = 10;
// Weight of the previous prediction in the next one.
constexpr double kMemory = 0.9;

}  // namespace

DiskTier::DiskTier(std::unique_ptr<BlockStore> store, const TierOptions& options, const Clock& clock,
                   std::function<void()> wake)
    : store_(std::move(store)),
      options_(options),
      most_slots_(std::max<int64_t>(2, options.write_bytes / store_->identity().slot_bytes())),
      clock_(clock),
      wake_(std::move(wake)),
      write_seconds_(kFirstSeconds +
                     static_cast<double>(store_->identity().block_bytes) / kFirstBytesPerSecond),
      slots_left_(most_slots_),
      writes_(std::numeric_limits<size_t>::max()),  // the slots bound it
      reads_(std::numeric_limits<size_t>::max()),   // its callers bound it
      writer_([this] { WriteAll(); }),
      reader_([this] {
        while (true) {
          const bool closed = reads_.closed();
          auto tasks = reads_.WaitAndTakeAll(absl::InfiniteDuration());
          if (closed) return;
          for (auto& task : tasks) task();
        }
      }) {}

DiskTier::~DiskTier() {
  reads_.Close();
  writes_.Close();
  reader_.join();
  writer_.join();
}

bool DiskTier::Has(const BlockHash& hash) const {
  {
    absl::MutexLock lock(&mutex_);
    if (pending_.contains(hash)) return true;
  }
  return store_->contains(hash);
}

std::unique_ptr<PageBuffer> DiskTier::TakeSlot() {
  absl::MutexLock lock(&mutex_);
  if (!slots_.empty()) {
    std::unique_ptr<PageBuffer> slot = std::move(slots_.back());
    slots_.pop_back();
    return slot;
  }
  if (slots_left_ == 0) {
    refused_ = true;
    return nullptr;
  }
  --slots_left_;
  return std::make_unique<PageBuffer>(store_->identity().slot_bytes());
}

void DiskTier::GiveBack(std::unique_ptr<PageBuffer> slot) {
  absl::MutexLock lock(&mutex_);
  slots_.push_back(std::move(slot));
}

void DiskTier::Write(const BlockHash& hash, const BlockHash& root, std::unique_ptr<PageBuffer> slot,
                     Fill fill) {
  {
    absl::MutexLock lock(&mutex_);
    pending_.insert(hash);
    ++counts_.waiting;
  }
  writes_.PostAlways({.hash = hash, .root = root, .slot = std::move(slot), .fill = std::move(fill)});
}

void DiskTier::WriteAll() {
  // Where threads are more than cores, it yields to those that compute; where it can't be told so, it does
  // not.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kWriterNiceness);
  while (true) {
    const bool closed = writes_.closed();
    std::vector<Job> jobs =
        writes_.WaitAndTakeAll(unsettled_ > 0 ? options_.settle : absl::InfiniteDuration());
    for (Job& job : jobs) WriteOne(std::move(job));
    if (jobs.empty() && unsettled_ > 0) Settle();
    if (closed && jobs.empty()) return;
  }
}

void DiskTier::Settle() {
  const absl::Time begin = clock_.Now();
  const absl::Status settled = store_->Settle();
  const double took = absl::ToDoubleSeconds(clock_.Now() - begin);
  const auto blocks = static_cast<double>(std::exchange(unsettled_, 0));
  const double seconds = std::exchange(unsettled_seconds_, 0) + took;
  if (!settled.ok()) return Pause(settled);
  // Each block's part, as if they had been told one by one.
  const double memory = std::pow(kMemory, blocks);
  write_seconds_.store(memory * write_seconds_.load() + (1 - memory) * seconds / blocks);
  {
    absl::MutexLock lock(&mutex_);
    counts_.write_seconds += took;
  }
  wake_();
}

void DiskTier::Pause(const absl::Status& status) {
  spdlog::warn("a KV block can't be written to disk, none is for {} s: {}",
               absl::ToDoubleSeconds(options_.pause), std::string(status.message()));
  paused_until_ = clock_.Now() + options_.pause;
}

void DiskTier::WriteOne(Job job) {
  const int64_t block_bytes = store_->identity().block_bytes;
  // A block on its way from a device is taken even if it is not written, as the next one comes behind it.
  if (job.fill) job.fill(job.slot->bytes().first(static_cast<size_t>(block_bytes)));
  const absl::Time begin = clock_.Now();
  const bool paused = begin < paused_until_;
  absl::Duration took;
  absl::Status written;
  if (!paused) {
    written = store_->Append(job.hash, job.root, *job.slot);
    took = clock_.Now() - begin;
    if (!written.ok()) {
      Pause(written);
    } else if (options_.settle < absl::InfiniteDuration()) {
      ++unsettled_;
      unsettled_seconds_ += absl::ToDoubleSeconds(took);
    } else {
      write_seconds_.store(kMemory * write_seconds_.load() + (1 - kMemory) * absl::ToDoubleSeconds(took));
    }
  }
  bool news;
  {
    absl::MutexLock lock(&mutex_);
    pending_.erase(job.hash);
    --counts_.waiting;
    if (paused) ++counts_.dropped_failing;
    if (!paused && written.ok()) {
      counts_.written_bytes += block_bytes;
      counts_.write_seconds += absl::ToDoubleSeconds(took);
    }
    slots_.push_back(std::move(job.slot));
    news = std::exchange(refused_, false) || counts_.waiting == 0;
  }
  if (news) wake_();
}

void DiskTier::Flush(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(
                              +[](Counts* counts) { return counts->waiting == 0; }, &counts_),
                          patience);
}

DiskTier::Counts DiskTier::counts() const {
  Counts counts;
  {
    absl::MutexLock lock(&mutex_);
    counts = counts_;
  }
  counts.store = store_->counts();
  return counts;
}

}  // namespace baton::kv::tier
