#include "common/fetch/probe.h"

#include <string>

namespace baton::fetch {
namespace {

prometheus::Counter& FetchOutcome(telemetry::Metrics& metrics, std::string_view link, const char* outcome) {
  return metrics.Counter("baton_peer_fetches_total",
                         "Fetches of blocks from peers that ended, by link and outcome.",
                         {{"link", std::string(link)}, {"outcome", outcome}});
}

prometheus::Counter& ServeOutcome(telemetry::Metrics& metrics, std::string_view link, const char* outcome) {
  return metrics.Counter("baton_peer_serves_total",
                         "Fetches by peers that this worker answered, by link and outcome.",
                         {{"link", std::string(link)}, {"outcome", outcome}});
}

telemetry::Metrics::Labels Link(std::string_view link) { return {{"link", std::string(link)}}; }

}  // namespace

Probe::Probe(telemetry::Metrics& metrics, std::string_view link)
    : complete_(FetchOutcome(metrics, link, "complete")),
      partial_(FetchOutcome(metrics, link, "partial")),
      missed_(FetchOutcome(metrics, link, "missed")),
      given_up_(FetchOutcome(metrics, link, "given_up")),
      refused_(FetchOutcome(metrics, link, "refused")),
      failed_(FetchOutcome(metrics, link, "failed")),
      blocks_(metrics.Counter("baton_peer_fetched_blocks_total", "KV blocks fetched from peers, by link.",
                              Link(link))),
      bytes_(metrics.Counter("baton_peer_fetched_bytes_total", "KV bytes fetched from peers, by link.",
                             Link(link))),
      seconds_(metrics.Histogram("baton_peer_fetch_seconds",
                                 "A fetch from a peer, from the call to the last block, by link.",
                                 telemetry::TtftBuckets(), Link(link))),
      running_(metrics.Gauge("baton_peer_fetching", "Fetches from peers in progress.")),
      served_ok_(ServeOutcome(metrics, link, "ok")),
      served_missed_(ServeOutcome(metrics, link, "missed")),
      served_cancelled_(ServeOutcome(metrics, link, "cancelled")),
      served_refused_(ServeOutcome(metrics, link, "refused")),
      served_failed_(ServeOutcome(metrics, link, "failed")),
      served_blocks_(
          metrics.Counter("baton_peer_served_blocks_total", "KV blocks sent to peers, by link.", Link(link))),
      served_bytes_(
          metrics.Counter("baton_peer_served_bytes_total", "KV bytes sent to peers, by link.", Link(link))),
      serving_(metrics.Gauge("baton_peer_serving", "Fetches by peers in progress.")) {}

void Probe::Began() { running_.Increment(); }

void Probe::Ended(Outcome outcome, int64_t blocks, int64_t bytes, absl::Duration took) {
  running_.Decrement();
  blocks_.Increment(static_cast<double>(blocks));
  bytes_.Increment(static_cast<double>(bytes));
  switch (outcome) {
    case Outcome::kComplete:
      complete_.Increment();
      break;
    case Outcome::kPartial:
      partial_.Increment();
      break;
    case Outcome::kMissed:
      missed_.Increment();
      return;
    case Outcome::kGivenUp:
      given_up_.Increment();
      return;
    case Outcome::kRefused:
      refused_.Increment();
      return;
    case Outcome::kFailed:
      failed_.Increment();
      return;
  }
  seconds_.Observe(absl::ToDoubleSeconds(took));
}

void Probe::Serve(Served outcome, int64_t blocks, int64_t bytes) {
  served_blocks_.Increment(static_cast<double>(blocks));
  served_bytes_.Increment(static_cast<double>(bytes));
  switch (outcome) {
    case Served::kOk:
      served_ok_.Increment();
      break;
    case Served::kMissed:
      served_missed_.Increment();
      break;
    case Served::kCancelled:
      served_cancelled_.Increment();
      break;
    case Served::kRefused:
      served_refused_.Increment();
      break;
    case Served::kFailed:
      served_failed_.Increment();
      break;
  }
}

void Probe::Serving(size_t now) { serving_.Set(static_cast<double>(now)); }

}  // namespace baton::fetch
