#include "router/placement/round_robin.h"

#include <algorithm>

namespace baton::router::placement {
namespace {

// Indices of `workers` in the order of their slots.
std::vector<size_t> BySlot(Workers workers) {
  std::vector<size_t> order(workers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return workers[a].slot < workers[b].slot; });
  return order;
}

}  // namespace

Selection RoundRobin::Select(const Request& request, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill;
  Selection selection;
  selection.reason = Reason::kTurn;
  selection.decode = BySlot(decode)[turn_ % decode.size()];
  const std::vector<size_t> order = BySlot(prefill);
  for (size_t i = 0; i < std::min(kMaxPrefillTargets, order.size()); ++i) {
    selection.prefill.push_back(order[(turn_ + i) % order.size()]);
  }
  ++turn_;
  selection.uncached_tokens = request.prompt_tokens;
  if (!selection.prefill.empty()) {
    const int64_t cached = prefill[selection.prefill.front()].matched_blocks * request.block_tokens;
    selection.uncached_tokens = std::max<int64_t>(1, request.prompt_tokens - cached);
  }
  return selection;
}

}  // namespace baton::router::placement
