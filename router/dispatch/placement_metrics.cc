#include "router/dispatch/placement_metrics.h"

#include <algorithm>
#include <vector>

#include "common/base/ids.h"

namespace baton::router {

PlacementMetrics::PlacementMetrics(Probe& probe, const std::string& policy) : probe_(probe) {
  for (size_t i = 0; i < placements_.size(); ++i) {
    const auto reason = placement::ReasonName(static_cast<placement::Reason>(i));
    placements_[i] = &probe_.Placements(policy, std::string(reason));
  }
  for (size_t i = 0; i < not_fetched_.size(); ++i) {
    const auto why = placement::NoFetchName(static_cast<placement::NoFetch>(i));
    if (!why.empty()) not_fetched_[i] = &probe_.FetchesNotPlanned(std::string(why));
  }
}

void PlacementMetrics::Placed(const Decision& decision) const {
  placements_[static_cast<size_t>(decision.selection.reason)]->Increment();
  if (auto* const counter = not_fetched_[static_cast<size_t>(decision.selection.no_fetch)]) {
    counter->Increment();
  }
  const int64_t prompt = decision.prompt_tokens;
  probe_.Predicted(prompt, decision.decode_matched * kBlockTokens, decision.prefill_matched * kBlockTokens);
  probe_.worker_hits().Placed({decision.decode->identity().id, "decode"}, prompt,
                              decision.decode_matched * kBlockTokens);
  if (decision.prefill.empty()) return;
  const int64_t beyond = std::max<int64_t>(0, decision.prefill_matched - decision.decode_matched);
  probe_.worker_hits().Placed({decision.prefill.front()->identity().id, "prefill"}, prompt,
                              beyond * kBlockTokens);
}

void PlacementMetrics::Finished(const Decision& decision, const v1::Finished& finished) const {
  const v1::Usage& usage = finished.usage();
  const v1::Relay& relay = finished.relay();
  probe_.Cached(usage.decode_cached_tokens(), usage.prefill_cached_tokens());
  if (relay.migrations() > 0) return;  // the usage is two workers'
  probe_.worker_hits().Found({decision.decode->identity().id, "decode"}, usage.decode_cached_tokens());
  if (relay.prefill_worker().empty()) return;
  probe_.worker_hits().Found({relay.prefill_worker(), "prefill"}, usage.prefill_cached_tokens());
}

void PlacementMetrics::Show(const fleet::View& view) const {
  std::vector<WorkerHits::Name> names;
  for (const auto& worker : view.decode) names.emplace_back(worker->identity().id, "decode");
  for (const auto& worker : view.prefill) names.emplace_back(worker->identity().id, "prefill");
  probe_.worker_hits().Keep(names);
}

}  // namespace baton::router
