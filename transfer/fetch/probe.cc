#include "transfer/fetch/probe.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "transfer/fetch/disk_source.h"

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

prometheus::Counter& LoadOutcome(telemetry::Metrics& metrics, FetchProbe::Tier tier, const char* outcome) {
  return metrics.Counter(NameOf(tier.name, "baton_disk_loads_total", "baton_shared_loads_total"),
                         HelpOf(tier.name, "Loads of blocks from the disk tier that ended, by outcome."),
                         {{"outcome", outcome}});
}

telemetry::Metrics::Labels Link(std::string_view link) { return {{"link", std::string(link)}}; }

}  // namespace

const char* NameOf(std::string_view tier, const char* disk, const char* shared) {
  return tier == kSharedName ? shared : disk;
}
std::string HelpOf(const char* tier, const char* help) { return absl::StrReplaceAll(help, {{"disk", tier}}); }

FetchProbe::FetchProbe(telemetry::Metrics& metrics, std::string_view link)
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
      running_(metrics.Gauge("baton_peer_fetching", "Fetches from peers in progress.")) {}

FetchProbe::FetchProbe(telemetry::Metrics& metrics, Tier tier)
    : complete_(LoadOutcome(metrics, tier, "complete")),
      partial_(LoadOutcome(metrics, tier, "partial")),
      missed_(LoadOutcome(metrics, tier, "missed")),
      given_up_(LoadOutcome(metrics, tier, "given_up")),
      refused_(LoadOutcome(metrics, tier, "refused")),
      failed_(LoadOutcome(metrics, tier, "failed")),
      blocks_(metrics.Counter(
          NameOf(tier.name, "baton_disk_loaded_blocks_total", "baton_shared_loaded_blocks_total"),
          HelpOf(tier.name, "KV blocks loaded from the disk tier."))),
      bytes_(metrics.Counter(
          NameOf(tier.name, "baton_disk_loaded_bytes_total", "baton_shared_loaded_bytes_total"),
          HelpOf(tier.name, "KV bytes loaded from the disk tier."))),
      seconds_(
          metrics.Histogram(NameOf(tier.name, "baton_disk_load_seconds", "baton_shared_load_seconds"),
                            HelpOf(tier.name, "A load from the disk tier, from its start to the last block."),
                            telemetry::TtftBuckets())),
      running_(metrics.Gauge(NameOf(tier.name, "baton_disk_loading", "baton_shared_loading"),
                             HelpOf(tier.name, "Loads from the disk tier in progress."))) {}

Probe::Probe(telemetry::Metrics& metrics, std::string_view link)
    : FetchProbe(metrics, link),
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

void FetchProbe::Began() { running_.Increment(); }

void FetchProbe::Ended(Outcome outcome, int64_t blocks, int64_t bytes, absl::Duration took) {
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
