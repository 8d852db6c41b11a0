#include "lab/bench/recorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::lab::bench {
namespace {

// Share of the TPOT: a token that comes sooner after the one before waited to travel with it.
constexpr double kRightAfter = 0.1;

}  // namespace

absl::Status Recorder::Judge(const RequestRecord& record) const {
  const Outcome& outcome = record.outcome;
  if (!outcome.status.ok()) return outcome.status;
  if (!outcome.finished.has_value()) return absl::InternalError("the stream ended without Finished");
  if (outcome.tokens == 0) return absl::InternalError("the answer has no tokens");
  if (options_.exact_length && outcome.tokens != record.output_tokens) {
    return absl::InternalError(
        fmt::format("asked for {} tokens, got {}: wrong length", record.output_tokens, outcome.tokens));
  }
  return absl::OkStatus();
}

void Recorder::Add(const RequestRecord& record) {
  const Outcome& outcome = record.outcome;
  if (cutting_off_ && outcome.status.code() == absl::StatusCode::kCancelled) {
    ++summary_.cut_off;
    return;
  }
  begin_ = std::min(begin_, record.intended);
  end_ = std::max(end_, outcome.end);
  summary_.seconds = absl::ToDoubleSeconds(end_ - begin_);
  summary_.lateness.Add(std::max(0.0, absl::ToDoubleSeconds(outcome.sent - record.intended)));
  if (const absl::Status status = Judge(record); !status.ok()) {
    ++summary_.failed;
    if (absl::IsResourceExhausted(status) && outcome.tokens == 0) {
      summary_.refused.Add(absl::ToDoubleSeconds(outcome.end - record.intended));
      summary_.refused_with_delay += outcome.retry_delay.has_value();
    }
    Summary::Error& error = summary_.errors[absl::StatusCodeToString(status.code())];
    if (error.count++ == 0) error.first_message = std::string(status.message());
    return;
  }
  if (options_.succeeded) options_.succeeded(record);
  ++summary_.succeeded;
  summary_.input_tokens += record.prompt_tokens;
  summary_.output_tokens += outcome.tokens;
  const double ttft = absl::ToDoubleSeconds(outcome.first_token - record.intended);
  summary_.ttft.Add(ttft);
  summary_.e2e.Add(absl::ToDoubleSeconds(outcome.end - record.intended));
  std::optional<double> tpot;
  if (outcome.tokens > 1) {
    tpot = absl::ToDoubleSeconds(outcome.last_token - outcome.first_token) /
           static_cast<double>(outcome.tokens - 1);
    summary_.tpot.Add(*tpot);
  }
  for (const float gap : outcome.gaps) {
    summary_.itl.Add(gap);
    if (tpot.has_value() && gap < kRightAfter * *tpot) ++summary_.bunched;
  }

  const Slo& slo = options_.slo;
  if (slo.ttft.has_value() || slo.tpot.has_value()) {
    const bool good =
        (!slo.ttft.has_value() || ttft <= absl::ToDoubleSeconds(*slo.ttft)) &&
        (!slo.tpot.has_value() || !tpot.has_value() || *tpot <= absl::ToDoubleSeconds(*slo.tpot));
    summary_.good = summary_.good.value_or(0) + (good ? 1 : 0);
  }

  const v1::Finished& finished = *outcome.finished;
  const v1::Timing& timing = finished.timing();
  summary_.queue.Add(timing.admit_seconds() + timing.decode_queue_seconds() + timing.prefill_queue_seconds());
  const std::array<double, 6> phases = {timing.admit_seconds(),         timing.decode_queue_seconds(),
                                        timing.prefill_queue_seconds(), timing.prefill_seconds(),
                                        timing.transfer_seconds(),      timing.first_token_seconds()};
  for (size_t i = 0; i < phases.size(); ++i) summary_.phases[i].Add(phases[i]);
  summary_.decode_cached_tokens += finished.usage().decode_cached_tokens();
  summary_.prefill_cached_tokens += finished.usage().prefill_cached_tokens();
  ++summary_.links[finished.relay().link()];
  summary_.shipped_bytes += static_cast<int64_t>(finished.relay().shipped_bytes());
  summary_.failovers += finished.relay().failovers();
  summary_.preemptions += finished.relay().preemptions();
}

}  // namespace baton::lab::bench
