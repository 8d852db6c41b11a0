// AnswerReport: what a decode worker tells about one answer beside its tokens: usage, timing and the relay's
// part (who prefilled, what was shipped). The scheduler reports events as they happen; the report makes the
// messages. Plain data with the time passed in; engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/fleet/v1/prefill.pb.h"
#include "baton/v1/generation.pb.h"
#include "common/telemetry/tracer.h"
#include "decode_service/answer_text.h"
#include "engine/kv/index/lease_table.h"
#include "protocol/forecast/step_totals.h"

namespace baton::decode_service {

class AnswerReport {
 public:
  // The request arrived at the worker that is called `decode_worker`. prompt_tokens: without resumed tokens.
  void Arrived(absl::Time now, const std::string& decode_worker, int64_t prompt_tokens);
  // It has its blocks, or needs none. cached_tokens: leading tokens whose KV was in the prefix cache.
  void Reserved(absl::Time now, int64_t cached_tokens);
  // The prompt's marks ask for these leases.
  void Marked(std::span<const kv::PrefixLease> leases);
  // So many tokens of the prompt have the KV that their reusable spans give alone.
  void Approximate(int64_t tokens) { usage_.set_approximate_reused_tokens(static_cast<uint32_t>(tokens)); }
  // So many tokens of the prompt have a lease.
  void Retained(int64_t tokens) { usage_.set_retained_tokens(static_cast<uint32_t>(tokens)); }
  // The disk or a peer sent the KV of leading tokens, or nothing; `cached_tokens` are here now, those
  // included.
  void Fetched(absl::Time now, const std::string& peer, int64_t tokens, absl::Duration took,
               int64_t cached_tokens);
  // The prompt was handed off, or its first chunk was planned. Only the first call counts.
  void PrefillStarted(absl::Time now);

  // A prefill worker's logits arrived. Counts only before the first token.
  void LogitsArrived(absl::Time now, const fleet::v1::PrefillDone& done);
  // A hand-off ended, well or not, after so many blocks and bytes.
  void Shipped(std::string_view link, int64_t blocks, int64_t bytes);
  void HandedOff(const std::string& prefill_worker) { relay_.set_prefill_worker(prefill_worker); }
  void HandOffFailed() { relay_.set_failovers(relay_.failovers() + 1); }
  // The share of a step that rows of this prompt took here.
  void ComputedHere(absl::Duration share) { computed_here_ += absl::ToDoubleSeconds(share); }
  // The last of those rows. Counts only before the first token.
  void PromptComputed(absl::Time now);
  void Preempted() { relay_.set_preemptions(relay_.preemptions() + 1); }

  // The model has checked so many drafted tokens.
  void Drafted(int64_t tokens) {
    usage_.set_drafted_tokens(usage_.drafted_tokens() + static_cast<uint32_t>(tokens));
  }
  // It drew one of them itself.
  void Accepted() { usage_.set_accepted_tokens(usage_.accepted_tokens() + 1); }
  uint32_t drafted_tokens() const { return usage_.drafted_tokens(); }
  uint32_t accepted_tokens() const { return usage_.accepted_tokens(); }

  // A token left, after so many steps. Returns how long it took: since the arrival for the first token, since
  // the token before for others.
  absl::Duration TokenSent(absl::Time now, const forecast::StepTotals& totals = {});

  absl::Time arrival() const { return arrival_; }
  bool first_token_sent() const { return first_token_ != absl::Time(); }
  // Seconds between the hand-off's start and its logits that neither waiting nor computing explains.
  double transfer_seconds() const { return transfer_; }

  // The spans of the phases, as children of `spans`' first one, with the durations that Timing has.
  // `failure`: empty if the answer ended well.
  void AddSpans(std::string_view failure, telemetry::RequestSpans& spans) const;

  // With the first token. Its timing has the phases that lie before the logits of that token.
  fleet::v1::Opening Opening() const;
  // generated: tokens of the answer, resumed ones included; `steps`: tokens after the first one drawn here.
  v1::Finished Finished(uint32_t choice, const AnswerText::End& end, int64_t generated, int64_t steps);
  // The means over those steps that lie behind the first token; nothing if there was none.
  std::optional<fleet::v1::StepMeans> steps() const;

 private:
  void ReportPhases(v1::Timing& timing) const;
  // The prompt's usage, of which every token was cached or is computed. Tokens under a mark that were not
  // cached are written, each in the longest class that covers it.
  v1::Usage PromptUsage() const;

  v1::Usage usage_;
  int64_t marked_5m_ = 0, marked_1h_ = 0;  // leading tokens of the prompt
  v1::Relay relay_;
  absl::Time arrival_, reserved_, prefill_started_, first_token_, last_token_;
  absl::Time fetch_ended_;
  absl::Time prompt_ready_;  // its last logits were there
  bool prefilled_here_ = false;
  // Seconds.
  double fetch_ = 0, prefill_queue_ = 0, prefill_ = 0, transfer_ = 0;
  double computed_here_ = 0;
  forecast::StepTotals first_totals_, last_totals_;  // when the first and the last token left
};

}  // namespace baton::decode_service
