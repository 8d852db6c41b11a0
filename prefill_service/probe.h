// Probe: what a prefill worker measures, as verbs. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "engine/kv/index/block_pool.h"

namespace baton::prefill_service {

class Probe {
 public:
  Probe(telemetry::Metrics& metrics, std::string_view link);

  // A prompt left the queue after `waited`.
  void Began(absl::Duration waited, int64_t prompt_tokens, int64_t cached_tokens);
  void Stepped(int64_t rows, absl::Duration took);
  void Shipped(int64_t bytes);
  void Cancelled();
  void Failed();
  // The peer states another fingerprint, or its request is invalid.
  void Refused();
  // The state after a step.
  void Observe(size_t queued, size_t computing, int64_t pending_tokens, const kv::BlockPool::Counts& blocks);

 private:
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& step_seconds_;
  prometheus::Counter& computed_tokens_;
  prometheus::Counter& query_tokens_;
  prometheus::Counter& hit_tokens_;
  prometheus::Counter& shipped_bytes_;
  prometheus::Counter& done_;
  prometheus::Counter& cancelled_;
  prometheus::Counter& failed_;
  prometheus::Counter& refused_;
  prometheus::Gauge& queued_;
  prometheus::Gauge& computing_;
  prometheus::Gauge& pending_tokens_;
  prometheus::Gauge& free_blocks_;
  prometheus::Gauge& held_blocks_;
  prometheus::Gauge& cached_blocks_;
};

}  // namespace baton::prefill_service
