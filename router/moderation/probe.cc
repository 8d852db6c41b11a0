#include "router/moderation/probe.h"

namespace baton::router::moderation {
namespace {

prometheus::Counter& Verdicts(telemetry::Metrics& metrics, const char* result) {
  return metrics.Counter("baton_router_moderation_verdicts_total", "Verdicts of classifiers",
                         {{"result", result}});
}

prometheus::Counter& BlockedOf(telemetry::Metrics& metrics, const char* what) {
  return metrics.Counter("baton_router_moderation_blocked_total",
                         "Answers, and requests for their prompts, that ended as CONTENT_FILTER",
                         {{"what", what}});
}

}  // namespace

Probe::Probe(telemetry::Metrics& metrics)
    : harmless_(Verdicts(metrics, "harmless")),
      flagged_(Verdicts(metrics, "flagged")),
      failed_(Verdicts(metrics, "failed")),
      took_(metrics.Histogram("baton_router_moderation_verdict_seconds", "Time from a text to its verdict",
                              telemetry::TtftBuckets())),
      held_(metrics.Histogram("baton_router_moderation_held_seconds",
                              "Time for which text that was sent in the end was held back, by piece",
                              telemetry::TtftBuckets())),
      tokens_(metrics.Counter("baton_router_moderation_tokens_total",
                              "Tokens that classifiers read and wrote for verdicts")),
      answers_(BlockedOf(metrics, "answer")),
      prompts_(BlockedOf(metrics, "prompt")),
      unjudged_(
          metrics.Counter("baton_router_moderation_fail_open_total",
                          "Texts that went on without a verdict because the classifier did not answer")) {}

}  // namespace baton::router::moderation
