#include "transfer/fetch/disk_probe.h"

#include "transfer/fetch/probe.h"

namespace baton::fetch {
namespace {

prometheus::Counter& DroppedWrites(telemetry::Metrics& metrics, const char* tier, const char* reason) {
  return metrics.Counter(NameOf(tier, "baton_disk_dropped_writes_total", "baton_shared_dropped_writes_total"),
                         HelpOf(tier, "Cached KV blocks that were not written to the disk tier, by reason."),
                         {{"reason", reason}});
}

prometheus::Counter& DiskFailures(telemetry::Metrics& metrics, const char* tier, const char* kind) {
  return metrics.Counter(
      NameOf(tier, "baton_disk_failures_total", "baton_shared_failures_total"),
      HelpOf(tier, "Reads and writes of the disk tier that failed, by kind; each is a miss and no more."),
      {{"kind", kind}});
}

}  // namespace

DiskProbe::DiskProbe(telemetry::Metrics& metrics, const char* tier)
    : blocks_(metrics.Gauge(NameOf(tier, "baton_disk_blocks", "baton_shared_blocks"),
                            HelpOf(tier, "KV blocks that can be found in the disk tier."))),
      bytes_(metrics.Gauge(NameOf(tier, "baton_disk_bytes", "baton_shared_bytes"),
                           HelpOf(tier, "Bytes of the disk tier's files."))),
      waiting_(metrics.Gauge(NameOf(tier, "baton_disk_waiting_writes", "baton_shared_waiting_writes"),
                             HelpOf(tier, "KV blocks on their way to the disk tier."))),
      written_blocks_(metrics.Counter(
          NameOf(tier, "baton_disk_written_blocks_total", "baton_shared_written_blocks_total"),
          HelpOf(tier, "KV blocks written to the disk tier."))),
      written_bytes_(
          metrics.Counter(NameOf(tier, "baton_disk_written_bytes_total", "baton_shared_written_bytes_total"),
                          HelpOf(tier, "KV bytes written to the disk tier."))),
      write_seconds_(
          metrics.Counter(NameOf(tier, "baton_disk_write_seconds_total", "baton_shared_write_seconds_total"),
                          HelpOf(tier, "Seconds that writes to the disk tier took."))),
      evicted_(metrics.Counter(
          NameOf(tier, "baton_disk_evicted_blocks_total", "baton_shared_evicted_blocks_total"),
          HelpOf(tier, "KV blocks that left the disk tier with their file."))),
      second_chances_(metrics.Counter(
          NameOf(tier, "baton_disk_second_chances_total", "baton_shared_second_chances_total"),
          HelpOf(tier, "KV blocks that were written once more instead."))),
      not_worth_it_(DroppedWrites(metrics, tier, "not_worth_it")),
      no_room_(DroppedWrites(metrics, tier, "no_room")),
      failing_(DroppedWrites(metrics, tier, "failing")),
      // In the order of BlockStore::Failure.
      failures_({&DiskFailures(metrics, tier, "read"), &DiskFailures(metrics, tier, "write"),
                 &DiskFailures(metrics, tier, "full"), &DiskFailures(metrics, tier, "corrupt")}) {}

void DiskProbe::Observe(const kv::tier::DiskTier::Counts& counts) {
  const auto more = [](prometheus::Counter& counter, auto now, auto before) {
    if (now > before) counter.Increment(static_cast<double>(now - before));
  };
  blocks_.Set(static_cast<double>(counts.store.blocks));
  bytes_.Set(static_cast<double>(counts.store.bytes));
  waiting_.Set(static_cast<double>(counts.waiting));
  more(written_blocks_, counts.store.written, told_.store.written);
  more(written_bytes_, counts.written_bytes, told_.written_bytes);
  more(write_seconds_, counts.write_seconds, told_.write_seconds);
  more(evicted_, counts.store.evicted, told_.store.evicted);
  more(second_chances_, counts.store.second_chances, told_.store.second_chances);
  more(failing_, counts.dropped_failing, told_.dropped_failing);
  for (size_t i = 0; i < failures_.size(); ++i) {
    more(*failures_[i], counts.store.failures[i], told_.store.failures[i]);
  }
  told_ = counts;
}

}  // namespace baton::fetch
