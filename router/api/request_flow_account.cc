// RequestFlow's accounts: what the client is told at the end of a choice of its tokens, their price, the
// cache and the phases of its first token.
#include <algorithm>
#include <utility>

#include "router/api/request_flow.h"
#include "router/api/usage.h"

namespace baton::router {

void RequestFlow::Complete(int choice, v1::Finished* cut) {
  ChoiceState& state = choices_[choice];
  v1::Finished& finished = *cut;
  const absl::Time now = clock_.Now();
  finished.set_choice(choice);
  if (finished.relay().decode_worker().empty()) {
    finished.mutable_relay()->set_decode_worker(state.placement.decode->identity().id);
  }
  if (state.migrations > 0) {
    // The worker that began reports the cache and the first token's timing, once. The pace is ours.
    finished.mutable_relay()->set_migrations(static_cast<uint32_t>(state.migrations));
    if (!state.sent.empty()) *finished.mutable_timing() = state.opening.timing();
    finished.mutable_timing()->clear_tpot_seconds();
  }
  SetUsage(account_.Choice(choice), finished.mutable_usage());
  DiagnoseMiss(choice, &finished);
  finished.clear_cost();
  if (price() != nullptr) *finished.mutable_cost() = CostMessage(*price(), account_.Charged(choice));
  v1::Timing* timing = finished.mutable_timing();
  const absl::Time first = state.first_token.value_or(now);
  const PhaseSeconds phases = SplitTtft(absl::ToDoubleSeconds(first - options_.arrival),
                                        absl::ToDoubleSeconds(state.dialed - options_.arrival), *timing);
  timing->set_admit_seconds(phases.admit);
  timing->set_decode_queue_seconds(phases.decode_queue);
  timing->set_prefill_queue_seconds(phases.prefill_queue);
  timing->set_prefill_seconds(phases.prefill);
  timing->set_transfer_seconds(phases.transfer);
  timing->set_first_token_seconds(phases.first_token);
  timing->set_ttft_seconds(phases.Sum());
  timing->set_e2e_seconds(absl::ToDoubleSeconds(now - options_.arrival));
  if (!timing->has_tpot_seconds() && state.tokens > 1) {
    timing->set_tpot_seconds(absl::ToDoubleSeconds(state.last_token - first) /
                             static_cast<double>(state.tokens - 1));
  }
  probe().Phases(phases);
  trace_.Finished(choice, state.dialed, first, phases.first_token);
  if (timing->has_tpot_seconds()) probe().Pace(timing->tpot_seconds());
  probe().Judge(timing->ttft_seconds(),
                timing->has_tpot_seconds() ? std::optional(timing->tpot_seconds()) : std::nullopt);
  outcome_.decode_worker = finished.relay().decode_worker();
  outcome_.prefill_worker = finished.relay().prefill_worker();
}

void RequestFlow::DiagnoseMiss(int choice, v1::Finished* finished) {
  finished->clear_cache_miss();
  if (!prompt_.has_value() || account_.charged_choice() != choice) return;
  const Placement& placement = choices_[choice].placement;
  prompt_->worker = placement.decode->identity().incarnation;
  auto miss = MissOf(last_prompt_.get(), *prompt_, prepared_.request.token_ids_size(),
                     account_.Choice(choice).cached(), placement.last_worker);
  options_.sessions->Remember(*prepared_.session_key, *std::exchange(prompt_, std::nullopt));
  if (!miss.has_value()) return;
  probe().CacheMissed(MissReasonName(miss->reason()), miss->tokens());
  *finished->mutable_cache_miss() = *std::move(miss);
}

admission::Meter::Use RequestFlow::Used() const {
  admission::Meter::Use use{.requests = 1};
  const billing::TokenCounts total = account_.Total();
  use.prompt_tokens = total.prompt();
  use.output_tokens = total.completion;
  return use;
}

PhaseSeconds SplitTtft(double ttft, double admit, const v1::Timing& worker) {
  PhaseSeconds phases;
  phases.admit = std::clamp(admit, 0.0, ttft);
  const double rest = ttft - phases.admit;
  phases.decode_queue = std::max(0.0, worker.decode_queue_seconds());
  phases.prefill_queue = std::max(0.0, worker.prefill_queue_seconds());
  phases.prefill = std::max(0.0, worker.prefill_seconds());
  phases.transfer = std::max(0.0, worker.transfer_seconds());
  const double reported = phases.decode_queue + phases.prefill_queue + phases.prefill + phases.transfer;
  if (reported > rest) {
    const double scale = rest / reported;
    phases.decode_queue *= scale;
    phases.prefill_queue *= scale;
    phases.prefill *= scale;
    phases.transfer *= scale;
    return phases;
  }
  phases.first_token = rest - reported;
  return phases;
}

}  // namespace baton::router
