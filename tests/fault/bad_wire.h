// BadWire: a cable that misbehaves, between two network namespaces: the caller's own and one made here.
// Frames pass through this process, which loses, delays, repeats, reorders and damages them by seeded draws,
// or cuts the cable. It needs neither the kernel's netem (many hosts lack it) nor names in /run/netns:
// namespaces and interfaces end with the process that made them, however it ends. Made on the main thread,
// before any other thread; used there.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::fault {

// The faults of frames, in both directions.
struct Trouble {
  double loss = 0;
  double repeat = 0;
  double damage = 0;   // one bit
  double reorder = 0;  // it leaves kLate later than it should
  absl::Duration delay;
  bool cut = false;
  // The cable is cut once so many frames of at least kDataBytes have come from the far end. Negative: never.
  int64_t cut_after = -1;

  static constexpr size_t kDataBytes = 1000;
  static constexpr absl::Duration kLate = absl::Milliseconds(30);
};

class BadWire {
 public:
  struct Counts {
    int64_t passed = 0, lost = 0, repeated = 0, damaged = 0, reordered = 0;
  };

  // Moves the calling process to a namespace of its own, and makes the other. PERMISSION_DENIED or
  // UNAVAILABLE where that can't be had, with the reason.
  static absl::StatusOr<std::unique_ptr<BadWire>> Create(uint64_t seed);
  ~BadWire();

  // The far end's address, in its namespace.
  static constexpr char kFarAddress[] = "10.77.0.1";
  // A descriptor of the far namespace, for setns.
  int far_namespace() const { return far_; }

  void Set(const Trouble& trouble);
  // Waits until the cable is cut, by `cut` or `cut_after`.
  void AwaitCut() const;
  Counts counts() const;

 private:
  BadWire(uint64_t seed, int far, int sockets[2]);
  void Run();
  // A frame came in at `side`.
  void Take(int side, std::vector<char> frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int far_;
  int sockets_[2];
  int wake_ = -1;  // eventfd
  mutable absl::Mutex mutex_;
  Trouble trouble_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  struct Frame {
    int to = 0;
    std::vector<char> bytes;
  };
  std::multimap<absl::Time, Frame> waiting_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace baton::fault
