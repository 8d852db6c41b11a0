// Probe: what a decode worker measures, as verbs. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "decode_service/draft_probe.h"
#include "engine/kv/index/block_pool.h"
#include "text/output/parser.h"

namespace baton::decode_service {

class Probe {
 public:
  Probe(telemetry::Metrics& metrics, std::string_view link);

  void Admitted(int64_t prompt_tokens, int64_t cached_tokens);
  // No room, or an invalid request: nothing was computed.
  void Refused();
  // A hand-off delivered everything.
  void HandedOff(int64_t blocks, int64_t bytes, absl::Duration transfer);
  // A hand-off ended early; the sequence goes on from what was committed.
  void HandOffFailed();
  // A chunk that no ticket covers.
  void LateWriteRefused();
  void Preempted();
  void Stepped(int64_t decode_rows, int64_t prefill_rows, absl::Duration took);
  // A token could not be drawn when its step was complete: its mask was not there.
  void DrawWaits();
  // The first token left, `since` after the request came.
  void FirstToken(absl::Duration since);
  // A further token left, `since` after the one before.
  void NextToken(absl::Duration since);
  enum class Outcome { kOk, kCancelled, kFailed };
  void Ended(Outcome outcome, absl::Duration e2e);
  // Something was found in an answer's parts, so many times.
  void Warned(std::string_view format, output::Warning kind, int times);
  // Sequences on this worker, by what they wait for.
  struct SequenceCounts {
    size_t handing_off = 0;
    size_t prefilling = 0;  // here, or behind a fetch
    size_t running = 0;
    size_t preempted = 0;
  };
  DraftProbe& drafts() { return drafts_; }
  // With so many answers a step meets the target of TPOT.
  void AnswersInTime(int64_t answers);
  void Observe(const SequenceCounts& sequences, const kv::BlockPool::Counts& blocks);

 private:
  telemetry::Metrics& metrics_;
  DraftProbe drafts_;
  prometheus::Histogram& ttft_seconds_;
  prometheus::Histogram& itl_seconds_;
  prometheus::Histogram& e2e_seconds_;
  prometheus::Histogram& step_seconds_;
  prometheus::Histogram& transfer_seconds_;
  prometheus::Counter& query_tokens_;
  prometheus::Counter& hit_tokens_;
  prometheus::Counter& received_bytes_;
  prometheus::Counter& received_blocks_;
  prometheus::Counter& handoffs_ok_;
  prometheus::Counter& handoffs_failed_;
  prometheus::Counter& late_writes_;
  prometheus::Counter& local_tokens_;
  prometheus::Counter& output_tokens_;
  prometheus::Counter& preemptions_;
  prometheus::Counter& draws_waited_;
  prometheus::Counter& ok_;
  prometheus::Counter& cancelled_;
  prometheus::Counter& failed_;
  prometheus::Counter& refused_;
  prometheus::Gauge& handing_off_;
  prometheus::Gauge& prefilling_;
  prometheus::Gauge& running_;
  prometheus::Gauge& preempted_;
  prometheus::Gauge& answers_in_time_;
  prometheus::Gauge& free_blocks_;
  prometheus::Gauge& held_blocks_;
  prometheus::Gauge& cached_blocks_;
};

}  // namespace baton::decode_service
