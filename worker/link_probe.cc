#include "worker/link_probe.h"

#include <utility>

namespace baton::worker {

LinkProbe::LinkProbe(telemetry::Metrics& metrics, std::string link)
    : metrics_(metrics),
      labels_{{"link", std::move(link)}},
      communicators_(
          metrics.Gauge("baton_link_communicators", "Open communicators, one per pair of workers.", labels_)),
      communicator_bytes_(metrics.Gauge("baton_link_communicator_bytes",
                                        "GPU memory of all open communicators, as measured.", labels_)),
      staging_bytes_(metrics.Gauge("baton_link_staging_bytes", "Staging memory of the link.", labels_)),
      staging_used_bytes_(metrics.Gauge("baton_link_staging_used_bytes",
                                        "Of that, in use by payloads on their way.", labels_)),
      ending_(metrics.Gauge("baton_link_ending_communicators",
                            "Communicators that NCCL is ending, off the link's threads.", labels_)),
      lost_ids_(metrics.Gauge(
          "baton_link_lost_ids",
          "Ids that NCCL made and no pair has met by: each keeps a thread and a port. Some are on their way.",
          labels_)),
      fault_(metrics.Gauge("baton_link_fault",
                           "1: a call of NCCL does not come back, and the worker should be restarted.",
                           labels_)),
      quarantined_(
          metrics.Gauge("baton_link_quarantined_pairs", "Pairs that rest after a failure.", labels_)),
      joined_(metrics.Counter("baton_link_joins_total", "Communicators that were made.", labels_)),
      aborted_(metrics.Counter("baton_link_aborts_total",
                               "Communicators given up: pairs that failed, or the least used of too many.",
                               labels_)),
      quarantines_(metrics.Counter("baton_link_quarantines_total", "Pairs that failed and were set to rest.",
                                   labels_)),
      dropped_bytes_(metrics.Counter("baton_link_dropped_bytes_total",
                                     "KV bytes received for hand-offs that were cancelled.", labels_)),
      connections_(metrics.Gauge("baton_link_connections",
                                 "Open connections to workers whose memory is read (ucx).", labels_)),
      held_payloads_(metrics.Gauge("baton_link_held_payloads",
                                   "Payloads that are held for their receivers to read (ucx).", labels_)),
      connected_(metrics.Counter("baton_link_connects_total", "Connections that were made (ucx).", labels_)),
      given_up_(metrics.Counter("baton_link_given_up_payloads_total",
                                "Payloads that nobody has read: their stream broke, or their receiver reads "
                                "nothing any more (ucx).",
                                labels_)),
      gone_(metrics.Counter("baton_link_gone_payloads_total",
                            "Reads in vain: the sender had given the payload up (ucx).", labels_)) {}

void LinkProbe::Counted(const transfer::NcclLink::Counts& counts) {
  communicators_.Set(static_cast<double>(counts.open_pairs));
  communicator_bytes_.Set(static_cast<double>(counts.communicator_bytes));
  staging_bytes_.Set(static_cast<double>(counts.staging_bytes));
  staging_used_bytes_.Set(static_cast<double>(counts.staging_in_use));
  ending_.Set(static_cast<double>(counts.ending));
  lost_ids_.Set(static_cast<double>(counts.ids - counts.ids_met));
  fault_.Set(counts.fault ? 1 : 0);
  quarantined_.Set(static_cast<double>(counts.quarantined));
  joined_.Increment(static_cast<double>(counts.joined - last_.joined));
  aborted_.Increment(static_cast<double>(counts.aborted - last_.aborted));
  quarantines_.Increment(static_cast<double>(counts.failed - last_.failed));
  dropped_bytes_.Increment(static_cast<double>(counts.dropped_bytes - last_.dropped_bytes));
  last_ = counts;
}

void LinkProbe::Counted(const transfer::UcxLink::Counts& counts) {
  connections_.Set(static_cast<double>(counts.connections));
  held_payloads_.Set(static_cast<double>(counts.held));
  staging_bytes_.Set(static_cast<double>(counts.staging_bytes));
  staging_used_bytes_.Set(static_cast<double>(counts.staging_in_use));
  quarantined_.Set(static_cast<double>(counts.resting));
  quarantines_.Increment(static_cast<double>(counts.failed - last_ucx_.failed));
  connected_.Increment(static_cast<double>(counts.connected - last_ucx_.connected));
  given_up_.Increment(static_cast<double>(counts.given_up - last_ucx_.given_up));
  gone_.Increment(static_cast<double>(counts.gone - last_ucx_.gone));
  last_ucx_ = counts;
}

void LinkProbe::Connected(const std::string& transport, int64_t channels) {
  telemetry::Metrics::Labels labels = labels_;
  labels.emplace("transport", transport);
  metrics_
      .Counter("baton_link_channels_total",
               "Channels that NCCL has connected for pairs of workers, by what carries their bytes.", labels)
      .Increment(static_cast<double>(channels));
}

void LinkProbe::Floor(double bytes_per_second) {
  metrics_
      .Gauge("baton_link_floor_bytes_per_second", "Least rate of the link for this worker to be ready.",
             labels_)
      .Set(bytes_per_second);
}

void LinkProbe::Measured(const std::string& peer, double bytes_per_second) {
  telemetry::Metrics::Labels labels = labels_;
  labels.emplace("peer", peer);
  metrics_
      .Gauge("baton_link_measured_bytes_per_second",
             "Rate of the link to a peer, as the test at start measured it.", labels)
      .Set(bytes_per_second);
}

}  // namespace baton::worker
