// Probe: the metrics of moderation, as verbs. Any thread. It never sees a text.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"

namespace baton::router::moderation {

class Probe {
 public:
  explicit Probe(telemetry::Metrics& metrics);

  void Judged(bool flagged, int64_t tokens, absl::Duration took) {
    (flagged ? flagged_ : harmless_).Increment();
    tokens_.Increment(static_cast<double>(tokens));
    took_.Observe(absl::ToDoubleSeconds(took));
  }
  void Failed() { failed_.Increment(); }
  // Pieces were sent that had been held for so long, the first of them.
  void Held(absl::Duration time) { held_.Observe(absl::ToDoubleSeconds(time)); }
  void Blocked(bool prompt) { (prompt ? prompts_ : answers_).Increment(); }
  void PassedUnjudged() { unjudged_.Increment(); }

 private:
  prometheus::Counter& harmless_;
  prometheus::Counter& flagged_;
  prometheus::Counter& failed_;
  prometheus::Histogram& took_;
  prometheus::Histogram& held_;
  prometheus::Counter& tokens_;
  prometheus::Counter& answers_;
  prometheus::Counter& prompts_;
  prometheus::Counter& unjudged_;
};

}  // namespace baton::router::moderation
