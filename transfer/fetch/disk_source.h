// DiskSource: a tier of the worker, its disk or what it shares with others, as its schedulers ask it: how
// many blocks of a chain it has, and the fetcher that loads them, which knows what that takes. To them it is
// one more peer, by the name of "disk" or "shared". Engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "baton/fleet/v1/blocks.pb.h"
#include "engine/kv/tier/disk_tier.h"
#include "transfer/fetch/fetcher.h"

namespace baton::fetch {

inline constexpr char kDiskName[] = "disk", kSharedName[] = "shared";

class DiskSource {
 public:
  // All outlive it.
  DiskSource(kv::tier::DiskTier& tier, Fetcher& fetcher, std::string name = kDiskName)
      : tier_(tier), fetcher_(fetcher), name_(std::move(name)) {}

  Fetcher& fetcher() { return fetcher_; }
  // Where the blocks of `chain` from the `from`-th on can be had: its `blocks` counts from the chain's start,
  // and is 0 if the tier does not have the first of them.
  fleet::v1::PeerPrefix Find(std::span<const kv::BlockHash> chain, int64_t from) const {
    fleet::v1::PeerPrefix prefix;
    const int64_t blocks = tier_.store().Match(chain.subspan(static_cast<size_t>(from)));
    if (blocks == 0) return prefix;
    prefix.set_worker(name_);
    prefix.set_address(name_);
    prefix.set_blocks(static_cast<uint32_t>(from + blocks));
    return prefix;
  }

 private:
  kv::tier::DiskTier& tier_;
  Fetcher& fetcher_;
  const std::string name_;
};

}  // namespace baton::fetch
