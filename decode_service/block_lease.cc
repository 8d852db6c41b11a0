#include "decode_service/block_lease.h"

#include <utility>

#include "decode_service/sequence.h"

namespace baton::decode_service {

BlockLeases::BlockLeases() = default;
BlockLeases::~BlockLeases() = default;

void BlockLeases::Release(BlockLease lease, std::unique_ptr<Sequence> sequence) {
  PendingRelease release{.sequence = std::move(sequence), .lease = std::move(lease), .steps = launched_};
  if (release.lease.handoff != nullptr) release.lease.handoff->Release();
  if (release.lease.fetch != nullptr) release.lease.fetch->Release();
  if (release.lease.kv != nullptr && !InUse(release)) release.lease.kv->Release();
  pending_.push_back(std::move(release));
}

void BlockLeases::ReleaseFinished() {
  std::erase_if(pending_, [this](const PendingRelease& release) { return !InUse(release); });
}

bool BlockLeases::InUse(const PendingRelease& release) const {
  const BlockLease& lease = release.lease;
  return (lease.handoff != nullptr && lease.handoff->writing()) ||
         (lease.fetch != nullptr && lease.fetch->writing()) || completed_ < release.steps;
}

}  // namespace baton::decode_service
