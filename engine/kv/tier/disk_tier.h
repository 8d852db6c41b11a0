// DiskTier: a BlockStore with two threads, so that the engine thread never waits for the disk: one writes
// what was handed over, one runs what reads. Writes wait in slots of memory that are taken before and come
// back when they are on disk: when all are on their way, TakeSlot has none, and the caller goes on without.
// Accepted blocks are written in order, also when the tier ends. After a write that failed, writes are
// dropped for a while, as a disk that is full or broken is so for the next write too.
//
// Engine thread, but for what says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mailbox.h"
#include "engine/kv/tier/block_store.h"

namespace baton::kv::tier {

struct TierOptions {
  // Memory for blocks on their way to the disk; at least two slots are had.
  int64_t write_bytes = int64_t{64} << 20;
  // How long writes are dropped after one has failed.
  absl::Duration pause = absl::Seconds(10);
  // After so long without further writes the store is to settle what it has.
  absl::Duration settle = absl::InfiniteDuration();
};

class DiskTier {
 public:
  struct Counts {
    BlockStore::Counts store;
    int64_t waiting = 0;          // writes
    int64_t dropped_failing = 0;  // writes during a pause
    double write_seconds = 0;     // of all writes
    int64_t written_bytes = 0;
  };

  // `clock` outlives it. `wake` is called on the writing thread when there is news: a slot has come back
  // after TakeSlot had none, all that was accepted is written, or it is settled.
  DiskTier(
      std::unique_ptr<BlockStore> store, const TierOptions& options, const Clock& clock,
      std::function<void()> wake = [] {});
  // Writes and settles what was accepted, ends what reads, and then the threads.
  ~DiskTier();

  // Any thread.
  BlockStore& store() { return *store_; }
  const BlockStore& store() const { return *store_; }

  // Writes that can be on their way at once.
  int64_t WriteSlots() const { return most_slots_; }

  // On the disk or on its way there.
  bool Has(const BlockHash& hash) const;
  // Memory for one block, which goes to Write or GiveBack. Null: all is on its way.
  std::unique_ptr<PageBuffer> TakeSlot();
  void GiveBack(std::unique_ptr<PageBuffer> slot);
  // `fill`, if there is one, completes the block's bytes on the writing thread.
  using Fill = absl::AnyInvocable<void(std::span<std::byte>)>;
  void Write(const BlockHash& hash, const BlockHash& root, std::unique_ptr<PageBuffer> slot, Fill fill = {});
  // Runs `task` on the reading thread, in turn; dropped if the tier ends. Any thread.
  void PostRead(absl::AnyInvocable<void()> task) { reads_.PostAlways(std::move(task)); }

  // Until nothing waits to be written, or `patience` is over.
  void Flush(absl::Duration patience);

  // Predicted seconds of writing one block. Any thread.
  double WriteSeconds() const { return write_seconds_.load(); }
  // Any thread.
  Counts counts() const;

 private:
  struct Job {
    BlockHash hash, root;
    std::unique_ptr<PageBuffer> slot;
    Fill fill;
  };
  void WriteAll();
  void WriteOne(Job job);
  void Settle();
  void Pause(const absl::Status& status);

  const std::unique_ptr<BlockStore> store_;
  const TierOptions options_;
  const int64_t most_slots_;
  const Clock& clock_;
  const std::function<void()> wake_;
  std::atomic<double> write_seconds_;
  // Writing thread.
  absl::Time paused_until_ = absl::InfinitePast();
  int64_t unsettled_ = 0;  // blocks, and the seconds that they took
  double unsettled_seconds_ = 0;

  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<PageBuffer>> slots_ ABSL_GUARDED_BY(mutex_);  // not in use
  int64_t slots_left_ ABSL_GUARDED_BY(mutex_);                              // that were never made yet
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;  // TakeSlot had none since `wake` was called
  absl::flat_hash_set<BlockHash> pending_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);

  Mailbox<Job> writes_;
  Mailbox<absl::AnyInvocable<void()>> reads_;
  std::thread writer_, reader_;
};

}  // namespace baton::kv::tier
