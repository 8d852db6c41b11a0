// WriteBehind: which cached blocks go to the tiers, and when. They are copied when they have become cached, a
// few in each step and while there is memory for writes, so that a worker that dies leaves most of them; and
// right before they are evicted, if they were not worth it before and are now. A block is worth it where what
// it spares, by its chance of being used again, is more than what it costs to write:
//
//     chance x (seconds to compute - seconds to load) > seconds to write
//
// and the chance of one that was used twice, or has a lease, counts as one. Each tier has its own seconds. A
// block waits in the pool until the first tier has room for it; a further one takes what it has room for
// then, so that one that is slow or hangs holds up nothing. Nothing here waits, but Flush.
// Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "engine/device/outbound.h"
#include "engine/engine.h"
#include "engine/kv/tier/disk_tier.h"
#include "transfer/fetch/disk_probe.h"
#include "transfer/fetch/fetcher.h"

namespace baton::fetch {

struct WriteBehindOptions {
  // Seconds to compute a block, as part of a prompt.
  double compute_seconds = 0;
  // Writes every block that becomes cached: for tests and benchmarks.
  bool always = false;
  // Bytes copied in one step; at least one block.
  int64_t step_bytes = int64_t{4} << 20;
  // The share of time that copying may take while there is other work: steps become longer by it.
  double share = 0.02;
};

class WriteBehind {
 public:
  // All outlive it; `loads` says what loading takes. It becomes the one who tracks the pool's cached blocks.
  WriteBehind(const WriteBehindOptions& options, engine::Engine& engine, kv::tier::DiskTier& tier,
              const Fetcher& loads, const Clock& clock, DiskProbe& probe);
  ~WriteBehind();
  // One more tier, before the first step. All outlive it.
  void Add(kv::tier::DiskTier& tier, const Fetcher& loads, DiskProbe& probe);

  // After a step: copies blocks, few of them if the worker is `busy` with other work. Whether more could be
  // copied at once.
  bool Step(bool busy);
  // At the end: copies and writes what is worth it, for so long at most.
  void Flush(absl::Duration patience);

 private:
  enum class Kept { kWritten, kThere, kNotWorthIt, kNoRoom };
  struct Target {
    kv::tier::DiskTier& tier;
    const Fetcher& loads;
    DiskProbe& probe;
    // Copies out of a device, for which the writing thread waits. Null: the host looks into the blocks.
    std::shared_ptr<device::Outbound> outbound = nullptr;
    std::unique_ptr<kv::tier::PageBuffer> slot = nullptr;  // had, and not needed after all
  };
  // Copies the block if it is worth it and there is room.
  Kept Keep(Target& target, const kv::BlockPool::Cached& block);
  bool WorthIt(const Target& target, const kv::BlockPool::Cached& block) const;
  void Evicting(const kv::BlockPool::Cached& block);

  const WriteBehindOptions options_;
  engine::Engine& engine_;
  const Clock& clock_;
  std::vector<Target> targets_;
  absl::Time last_step_ = absl::InfiniteFuture();
  absl::Duration credit_;  // of time to copy while it is busy
  int64_t budget_;         // bytes that may be copied before the next Step
  std::vector<std::span<std::byte>> pieces_;
};

}  // namespace baton::fetch
