#include "router/index/hot_prefixes.h"

#include <algorithm>
#include <cmath>

namespace baton::router::index {
namespace {

// Beyond this the weights are brought back to 1; far below where a double loses a placement.
constexpr double kHeavy = 1 << 20;

}  // namespace

double HotPrefixes::Weight(absl::Time now) const {
  return std::exp2(absl::FDivDuration(now - scale_, kHalfLife));
}

void HotPrefixes::Placed(const kv::BlockHash& last, int64_t blocks, int64_t holders, absl::Time now) {
  if (entries_.empty()) scale_ = now;
  if (const double weight = Weight(now); weight > kHeavy) {
    // After a long silence all of them are nothing: what is left of them is below one placement.
    for (Entry& entry : entries_) {
      entry.count /= weight;
      entry.error /= weight;
    }
    scale_ = now;
  }
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.last == last; });
  if (found == entries_.end()) {
    if (entries_.size() < kTracked) {
      entries_.push_back({.last = last});
      found = std::prev(entries_.end());
    } else {
      found = std::min_element(entries_.begin(), entries_.end(),
                               [](const Entry& a, const Entry& b) { return a.count < b.count; });
      found->last = last;
      found->error = found->count;
    }
  }
  found->count += Weight(now);
  found->blocks = blocks;
  found->holders = holders;
}

std::vector<HotPrefixes::Hot> HotPrefixes::Top(size_t most, absl::Time now) const {
  // A steady rate r sums up to r times the mean life of a fading placement.
  const double mean_life = absl::ToDoubleSeconds(kHalfLife) / std::log(2.0);
  std::vector<Hot> top;
  for (const Entry& entry : entries_) {
    const double sure = entry.count - entry.error;
    top.push_back(
        {.per_second = sure / (Weight(now) * mean_life), .blocks = entry.blocks, .holders = entry.holders});
  }
  std::sort(top.begin(), top.end(), [](const Hot& a, const Hot& b) {
    return a.per_second != b.per_second ? a.per_second > b.per_second : a.blocks > b.blocks;
  });
  if (top.size() > most) top.resize(most);
  return top;
}

}  // namespace baton::router::index
