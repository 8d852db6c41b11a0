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

void PlacementMetrics::Placed(const Placement& placement) const {
  const placement::Selection& selection = placement.selection;
  placements_[static_cast<size_t>(selection.reason)]->Increment();
  if (auto* const counter = not_fetched_[static_cast<size_t>(selection.no_fetch)]) counter->Increment();
  const int64_t prompt = placement.prompt_tokens;
  const int64_t on_decode = selection.decode_matched * kBlockTokens;
  const int64_t on_prefill = selection.prefill_matched * kBlockTokens;
  probe_.Predicted(prompt, on_decode, on_prefill);
  probe_.worker_hits().Placed({placement.decode->identity().id, "decode"}, prompt, on_decode);
  if (placement.prefill.empty()) return;
  probe_.worker_hits().Placed({placement.prefill.front()->identity().id, "prefill"}, prompt,
                              std::max<int64_t>(0, on_prefill - on_decode));
}

void PlacementMetrics::Finished(const Placement& placement, const v1::Finished& finished) const {
  const v1::Usage& usage = finished.usage();
  const v1::Relay& relay = finished.relay();
  probe_.Cached(usage.decode_cached_tokens(), usage.prefill_cached_tokens());
  if (relay.migrations() > 0) return;  // the usage is two workers'
  probe_.worker_hits().Found({placement.decode->identity().id, "decode"}, usage.decode_cached_tokens());
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
