// HotPrefixes: the prefixes that have been asked for most lately. A prefix is what a prompt shares with what
// some worker holds already (its longest match), known by the hash of its last block, never by its text.
// Memory is bounded by the Space-Saving algorithm (Metwally, Agrawal, El Abbadi 2005): kTracked prefixes are
// counted, a new one takes the place of the least, and inherits its count as the error that it may have.
// Counts fade with a half-life, so they are rates. One thread at a time (the dispatcher's lock); knows no
// clock.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "protocol/block_hash.h"

namespace baton::router::index {

class HotPrefixes {
 public:
  static constexpr size_t kTracked = 64;
  static constexpr absl::Duration kHalfLife = absl::Minutes(1);

  struct Hot {
    double per_second = 0;  // placements; never more than the truth
    int64_t blocks = 0;     // how long it is
    int64_t holders = 0;    // workers that held all of it when it was last asked for
  };

  // A prompt was placed whose longest match ends with the block `last`. `now` never goes back far.
  void Placed(const kv::BlockHash& last, int64_t blocks, int64_t holders, absl::Time now);

  // The hottest first, at most `most`; only what was surely asked for.
  std::vector<Hot> Top(size_t most, absl::Time now) const;

 private:
  struct Entry {
    kv::BlockHash last;
    int64_t blocks = 0;
    int64_t holders = 0;
    double count = 0;  // in placements as of scale_
    double error = 0;  // of that, what may be others'
  };

  // The weight of a placement at `now`; one at scale_ weighs 1.
  double Weight(absl::Time now) const;

  std::vector<Entry> entries_;
  absl::Time scale_ = absl::InfinitePast();
};

}  // namespace baton::router::index
