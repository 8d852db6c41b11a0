// ExpertStore: the experts of a model in a bounded memory, over a FarMemory that has all of them. A step
// holds the experts that it computes with; those that are missing are read together, by threads of the store,
// while the step computes with others, and each is checked against its checksum whenever it is read. What has
// not been used for longest makes room.
// Slots have one size, that of the largest expert, so that resident bytes are slots times size, at any time.
//
// Invariant: an expert is in one slot at most, and one that is held does not go.
// The engine's thread; stats() any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/device/memory.h"
#include "engine/model/far_memory.h"

namespace baton::model {

struct ExpertId {
  int32_t layer = 0;
  int32_t expert = 0;
  friend auto operator<=>(const ExpertId&, const ExpertId&) = default;
};

// Where an expert lies in far memory.
struct ExpertExtent {
  int64_t offset = 0;  // of a page
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C of its bytes

  friend bool operator==(const ExpertExtent&, const ExpertExtent&) = default;
};
using ExpertIndex = std::map<ExpertId, ExpertExtent>;

class ExpertStore {
 public:
  struct Stats {
    int64_t hits = 0, misses = 0;  // of experts that were held
    int64_t bytes_read = 0;        // whole pages, repeated reads too
    double read_seconds = 0;       // during which experts of a step were read
    int64_t retries = 0;           // reads that had to be repeated
    double stall_seconds = 0;      // that Hold or Await waited for far memory
    int64_t resident = 0;          // experts
    int64_t resident_bytes = 0;    // of all slots in use
  };

  // `capacity` bytes of the host's memory, in huge pages where there are any, taken as they are used.
  // INVALID_ARGUMENT says how many one expert needs, if it is less; RESOURCE_EXHAUSTED: the system has not as
  // many. readers: threads that read.
  static absl::StatusOr<std::unique_ptr<ExpertStore>> Create(std::unique_ptr<FarMemory> far,
                                                             ExpertIndex index, int64_t capacity,
                                                             int readers);

  ~ExpertStore();

  // An expert that is held: which one of those that were asked for, and where its bytes are, from a page's
  // start on, once it is there.
  struct Held {
    size_t which = 0;
    std::span<const std::byte> image = {};
  };
  // Holds the first of these experts, as many as have room together, until Release: those that are there
  // come first, then those that are read from now on. Different ones; nothing is held yet.
  std::span<const Held> Begin(std::span<const ExpertId> experts);
  // Waits until so many of them, from the front, are there; how many are. DATA_LOSS or UNAVAILABLE names one
  // that can't be read, after three attempts.
  absl::StatusOr<size_t> Await(size_t count);
  // Waits for whatever is still being read. What could be read stays.
  void Release();

  // Begin, and Await of all: their bytes in the order of `experts`. After an error nothing is held.
  absl::StatusOr<std::vector<std::span<const std::byte>>> Hold(std::span<const ExpertId> experts);

  // Reads every expert once, as many together as have room, so that damage is found before anything is
  // computed; the last ones stay. No hits, misses or stalls. Errors as of Hold. Nothing is held yet.
  absl::Status ReadAll();

  Stats stats() const;
  // Experts that have room at once, and of the model.
  int64_t slots() const { return slots_; }
  int64_t experts() const { return static_cast<int64_t>(index_.size()); }

  // BATON_CHECKs the invariants.
  void CheckInvariants() const;

 private:
  struct Slot {
    ExpertId id = {};
    bool empty = true;  // holds no expert
    bool held = false;
    std::byte* bytes = nullptr;  // slot_bytes_ of memory_; constant
  };
  using Slots = std::list<Slot>;

  ExpertStore(std::unique_ptr<FarMemory> far, ExpertIndex index, int64_t slot_bytes, int64_t slots,
              device::Memory::Buffer memory, int readers);
  // A slot without an expert, at the front: a new one, or that of the expert that was used longest ago.
  Slots::iterator Room();
  absl::Status Read(ExpertId id, Slot& slot);
  void ReadAsAsked();  // a reader's thread
  bool Asked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || next_ < jobs_.size(); }

  const std::unique_ptr<FarMemory> far_;
  const ExpertIndex index_;
  const int64_t slot_bytes_;
  const int64_t slots_;
  const device::Memory::Buffer memory_;
  Slots used_;                              // slots in use, the last used first; so the held ones first
  std::map<ExpertId, Slots::iterator> at_;  // of the experts that are resident
  std::vector<Held> held_;
  size_t there_ = 0;  // of them, from the front
  size_t hit_ = 0;    // of them, those that are not read

  // A slot that is being read. The slot is the reader's until it is done.
  struct Job {
    Slots::iterator slot;
    absl::Status status;
    bool done = false;
  };
  absl::Mutex mutex_;
  std::vector<Job> jobs_ ABSL_GUARDED_BY(mutex_);  // of held_ from hit_ on
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;        // that no reader has taken
  size_t read_ ABSL_GUARDED_BY(mutex_) = 0;        // that are done
  std::chrono::steady_clock::time_point asked_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> readers_;

  std::atomic<int64_t> hits_{0}, misses_{0}, bytes_read_{0}, retries_{0}, stall_ns_{0}, read_ns_{0},
      resident_{0}, resident_bytes_{0};
};

}  // namespace baton::model
