#include "router/dispatch/placement.h"

#include <algorithm>

#include "common/base/ids.h"

namespace baton::router {
namespace {

constexpr double kMostAnswers = 1e6, kMostContext = 1e12;

}  // namespace

void Placement::Explain(const std::string& policy, v1::PlacementInfo* info) const {
  info->set_policy(policy);
  info->set_reason(std::string(placement::ReasonName(selection.reason)));
  info->set_predicted_ttft_seconds(selection.predicted.ttft());
  info->set_prompt_blocks(static_cast<uint32_t>(prompt_blocks));
  info->set_decode_matched_blocks(static_cast<uint32_t>(selection.decode_matched));
  info->set_prefill_matched_blocks(static_cast<uint32_t>(selection.prefill_matched));
  for (const auto& worker : prefill) info->add_prefill_workers(worker->identity().id);
  info->set_no_fetch(std::string(placement::NoFetchName(selection.no_fetch)));
  if (fetch_from == nullptr) return;
  info->set_fetch_from(fetch_from->identity().id);
  info->set_fetch_blocks(static_cast<uint32_t>(selection.fetch_blocks));
}

std::optional<placement::Outcome> Placement::OutcomeOf(const v1::Finished& finished,
                                                       const baton::fleet::v1::StepMeans& steps) const {
  const v1::Usage& usage = finished.usage();
  const v1::Timing& timing = finished.timing();
  const v1::Relay& relay = finished.relay();
  placement::Outcome outcome;
  const fleet::Worker* computed = decode.get();
  int64_t cached = usage.decode_cached_tokens();
  if (!relay.prefill_worker().empty()) {
    const auto found = std::find_if(prefill.begin(), prefill.end(), [&](const auto& worker) {
      return worker->identity().id == relay.prefill_worker();
    });
    if (found == prefill.end()) return std::nullopt;  // not of our choosing
    computed = found->get();
    // It reports what it had beyond the decode worker's; if that is nothing, it had at most as much.
    if (usage.prefill_cached_tokens() > 0) {
      cached += usage.prefill_cached_tokens();
    } else {
      cached = std::min(cached, selection.prefill_matched * kBlockTokens);
    }
    outcome.wait_seconds = timing.prefill_queue_seconds();
    outcome.ship_seconds = timing.transfer_seconds();
    outcome.shipped_bytes = static_cast<int64_t>(relay.shipped_bytes());
  }
  if (computed->departed() || decode->departed()) return std::nullopt;
  outcome.prefill = computed->slot();
  outcome.decode = decode->slot();
  outcome.cached_tokens = cached;
  outcome.uncached_tokens = std::max<int64_t>(0, prompt_tokens - cached);
  outcome.compute_seconds = timing.prefill_seconds();
  if (relay.fetched_tokens() > 0) {
    outcome.fetch_seconds = relay.fetch_seconds();
    outcome.fetched_tokens = relay.fetched_tokens();
  }
  // A worker's word: no more answers and tokens than any worker can have.
  if (steps.answers() >= 1 && steps.answers() <= kMostAnswers && steps.context_tokens() >= 0 &&
      steps.context_tokens() <= kMostContext) {
    outcome.step_seconds = steps.seconds();
    outcome.batch = steps.answers();
    outcome.context_tokens = steps.context_tokens();
  }
  outcome.output_tokens = usage.completion_tokens();
  return outcome;
}

}  // namespace baton::router
