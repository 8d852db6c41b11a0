// BlockLease: the KV blocks that a sequence holds, together with the hand-off or fetch that fills them.
// BlockLeases: the one place where leases end. Blocks go back only when nothing writes or reads them any
// more: a link's write that has begun, or a step in flight. What can't be released at once is kept as a
// pending release. Engine thread; no clock, no I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "decode_service/handoff.h"
#include "engine/sequence_kv.h"
#include "transfer/fetch/fetch.h"

namespace baton::decode_service {

struct Sequence;

struct BlockLease {
  std::unique_ptr<engine::SequenceKv> kv;
  std::unique_ptr<Handoff> handoff;     // null unless a prefill worker fills the blocks
  std::unique_ptr<fetch::Fetch> fetch;  // null unless a peer fills the leading blocks
};

class BlockLeases {
 public:
  BlockLeases();
  ~BlockLeases();

  // Steps that compute in leased blocks are counted, so that a lease outlives those launched before its end.
  void StepLaunched() { ++launched_; }
  void StepCompleted() { ++completed_; }
  int64_t steps_launched() const { return launched_; }

  // Ends a lease, or parts of one: no further write begins and no callback comes. The blocks go back now, or
  // in a later ReleaseFinished. The objects are destroyed in ReleaseFinished only, because this may be called
  // from a callback of theirs; so is `sequence`, whose end this may be.
  void Release(BlockLease lease, std::unique_ptr<Sequence> sequence = nullptr);
  // Ends what nothing writes or reads any more. Once per step, and not from a callback.
  void ReleaseFinished();

  size_t pending() const { return pending_.size(); }

 private:
  struct PendingRelease {
    std::unique_ptr<Sequence> sequence;  // may be null
    BlockLease lease;
    int64_t steps = 0;  // that must be complete
  };
  bool InUse(const PendingRelease& release) const;

  int64_t launched_ = 0;
  int64_t completed_ = 0;
  std::vector<PendingRelease> pending_;
};

}  // namespace baton::decode_service
