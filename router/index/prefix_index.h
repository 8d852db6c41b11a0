// PrefixIndex: which workers hold which blocks, as far as this router knows: block hash -> set of workers,
// for the prefill and the decode pool alike. It answers one question: how many blocks of a prompt's chain
// does each worker hold, from the start? Advice, never truth: a worker looks into its own cache again, by the
// whole hash; an entry here keeps 106 of the 128 bits. It knows neither gRPC nor time (callers say what time
// it is).
//
// Memory is bounded: at the cap, blocks that were not stored or asked for lately make room. A worker that
// leaves is out of every answer at once; its entries are swept up by later calls, a segment at a time, and
// only then is its slot given out again.
//
// Any thread. One reader-writer lock: a Match holds it shared; writers hold it for at most kSlice blocks or
// one segment's rebuilding (tens of microseconds) at a time, so that a snapshot of any size delays no lookup
// for long.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "protocol/block_hash.h"
#include "router/index/segment.h"
#include "router/index/slot_sets.h"
#include "router/index/speculation.h"
#include "router/index/worker_slot.h"

namespace baton::router::index {

// The answer to a Match. Reusable: no allocation once it has grown.
struct Matches {
  std::vector<uint32_t> blocks;  // by slot; unused slots have 0
  uint32_t longest = 0;

  uint32_t of(WorkerSlot slot) const { return slot.value() < blocks.size() ? blocks[slot.value()] : 0; }
};

class PrefixIndex {
 public:
  struct Options {
    // Bound on all memory here. An empty index takes 700 KiB; sets that shrink may take 704 KiB beyond it.
    int64_t max_bytes = int64_t{1} << 30;
    // Unconfirmed (worker, block) pairs.
    int64_t max_speculative = int64_t{1} << 18;
  };
  struct Stats {
    int64_t workers = 0;
    int64_t blocks = 0;  // entries, those of workers that left and are not swept up yet included
    int64_t pairs = 0;   // (worker, block) of workers that are here
    int64_t speculative = 0;
    int64_t bytes = 0;
    int64_t evicted_blocks = 0;  // since the start, for lack of memory
    int64_t dropped_pairs = 0;   // since the start, for lack of memory
  };
  // Blocks per hold of the lock.
  static constexpr size_t kSlice = 64;

  explicit PrefixIndex(Options options);

  // A slot for a worker, given out again some time after Leave. Nothing if all kMaxSlots are taken.
  std::optional<WorkerSlot> Join();
  // The worker is gone, or starts again (then Join again). The slot is void from now on.
  void Leave(WorkerSlot slot);

  // The worker says that it holds these blocks (idempotent), or no longer. Calls for a void slot do nothing.
  void Store(WorkerSlot slot, std::span<const kv::BlockHash> blocks);
  void Evict(WorkerSlot slot, std::span<const kv::BlockHash> blocks);
  // It will hold them soon: speculative entries, until the worker stores them, evicts them, or `until`.
  void Speculate(WorkerSlot slot, std::span<const kv::BlockHash> blocks, absl::Time until);

  // For every worker the length of its longest run of `chain` from the start.
  void Match(std::span<const kv::BlockHash> chain, Matches* matches) const;

  // How many of the blocks of `run`, which Match found the worker to hold, it has said itself that it holds,
  // from the start. Speculative entries begin where confirmed ones ended, so a few probes tell; a set that
  // has changed since may be told a little wrong.
  int64_t Confirmed(WorkerSlot slot, std::span<const kv::BlockHash> run) const;

  // Drops due speculations and sweeps up entries of the departed. A bounded amount of work; true if there is
  // more. Call it now and then.
  bool Maintain(absl::Time now);

  Stats stats() const;
  // Pairs of one worker.
  int64_t PairsOf(WorkerSlot slot) const;
  // CHECK-fails if counts and tables disagree. O(everything).
  void CheckConsistency() const;

 private:
  static constexpr size_t kSegments = size_t{1} << Key::kSegmentBits;
  // Lookups in flight at a time: enough to hide a cache miss.
  static constexpr size_t kAhead = 12;

  struct Slot {
    uint64_t life = 0;  // 0: void
    int64_t pairs = 0;
  };
  using Bits = std::vector<uint64_t>;  // by slot
  class Walk;

  bool Lives(WorkerSlot slot) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return slot.value() < slots_.size() && slots_[slot.value()].life != 0;
  }
  int64_t Bytes() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Calls work(block) for each, with the lookups of those behind it under way.
  template <typename Work>
  void Ahead(std::span<const kv::BlockHash> blocks, Work work) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Calls work(block) for each in slices under the lock, for as long as the slot lives.
  void InSlices(WorkerSlot slot, std::span<const kv::BlockHash> blocks,
                const std::function<void(const kv::BlockHash&)>& work);
  // False if the pair was there already, or for lack of memory.
  bool AddPair(WorkerSlot slot, const kv::BlockHash& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemovePair(WorkerSlot slot, const kv::BlockHash& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new key, at the price of another if need be.
  void AddEntry(const Key& key, WorkerSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Segment& segment, Segment::Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts some cold blocks anywhere.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops speculations that are due or too many, until `enough` are dropped. True if there may be more.
  bool Expire(absl::Time now, size_t enough) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sweeps one segment. False if there is nothing to sweep.
  bool SweepOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EraseEntryIfEmpty(Segment& segment, Segment::Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::vector<Segment> segments_ ABSL_GUARDED_BY(mutex_);
  SlotSets sets_ ABSL_GUARDED_BY(mutex_);
  Speculation speculation_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);  // the last one is given out first
  Bits live_ ABSL_GUARDED_BY(mutex_);
  uint64_t lives_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t workers_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t pairs_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t segment_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t evicted_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_pairs_ ABSL_GUARDED_BY(mutex_) = 0;
  // Slots that left since the running sweep began, and those that it sweeps up; their numbers.
  Bits left_ ABSL_GUARDED_BY(mutex_);
  Bits sweeping_ ABSL_GUARDED_BY(mutex_);
  int64_t left_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sweeping_count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t room_at_ ABSL_GUARDED_BY(mutex_) = 0;  // MakeRoom's segment
};

}  // namespace baton::router::index
