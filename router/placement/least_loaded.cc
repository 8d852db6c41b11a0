#include "router/placement/least_loaded.h"

#include <algorithm>
#include <tuple>

#include "router/placement/tie.h"

namespace baton::router::placement {

Selection LeastLoaded::Select(const Request& request, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill;
  const uint64_t tie_key = next_tie_key_++;
  Selection selection;
  selection.reason = Reason::kLoad;
  const auto decode_rank = [&](const WorkerState& worker) {
    return std::tuple(worker.requests(), Tie(seed_, tie_key, worker.slot));
  };
  selection.decode =
      std::min_element(decode.begin(), decode.end(),
                       [&](const auto& a, const auto& b) { return decode_rank(a) < decode_rank(b); }) -
      decode.begin();
  selection.uncached_tokens = request.prompt_tokens;
  if (prefill.empty()) return selection;

  const auto prefill_rank = [&](size_t at) {
    const WorkerState& worker = prefill[at];
    return std::tuple(worker.queued_tokens, worker.requests(), Tie(seed_, tie_key, worker.slot));
  };
  std::vector<size_t> ranked(prefill.size());
  for (size_t i = 0; i < ranked.size(); ++i) ranked[i] = i;
  const size_t keep = std::min(kMaxPrefillTargets, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<int64_t>(keep), ranked.end(),
                    [&](size_t a, size_t b) { return prefill_rank(a) < prefill_rank(b); });
  ranked.resize(keep);
  selection.prefill = std::move(ranked);
  const WorkerState& first = prefill[selection.prefill.front()];
  selection.uncached_tokens =
      std::max<int64_t>(1, request.prompt_tokens - first.matched_blocks * request.block_tokens);
  return selection;
}

}  // namespace baton::router::placement
