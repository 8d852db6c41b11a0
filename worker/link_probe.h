// LinkProbe: what a worker's link measures, as verbs. Engine thread, but for Floor and Measured: any.
#pragma once

#include <cstdint>
#include <string>

#include "common/telemetry/metrics.h"
#include "transfer/nccl/nccl_link.h"
#include "transfer/ucx/ucx_link.h"

namespace baton::worker {

class LinkProbe {
 public:
  // `link`: its name, the label of all of them.
  LinkProbe(telemetry::Metrics& metrics, std::string link);

  // Takes the present counts of the nccl or the ucx link.
  void Counted(const transfer::NcclLink::Counts& counts);
  void Counted(const transfer::UcxLink::Counts& counts);
  // So many channels more go by this transport.
  void Connected(const std::string& transport, int64_t channels);
  // The least that the test at start has to show.
  void Floor(double bytes_per_second);
  // The test's result with `peer`.
  void Measured(const std::string& peer, double bytes_per_second);

 private:
  telemetry::Metrics& metrics_;
  const telemetry::Metrics::Labels labels_;
  transfer::NcclLink::Counts last_;
  transfer::UcxLink::Counts last_ucx_;
  prometheus::Gauge& communicators_;
  prometheus::Gauge& communicator_bytes_;
  prometheus::Gauge& staging_bytes_;
  prometheus::Gauge& staging_used_bytes_;
  prometheus::Gauge& ending_;
  prometheus::Gauge& lost_ids_;
  prometheus::Gauge& fault_;
  prometheus::Gauge& quarantined_;
  prometheus::Counter& joined_;
  prometheus::Counter& aborted_;
  prometheus::Counter& quarantines_;
  prometheus::Counter& dropped_bytes_;
  prometheus::Gauge& connections_;
  prometheus::Gauge& held_payloads_;
  prometheus::Counter& connected_;
  prometheus::Counter& given_up_;
  prometheus::Counter& gone_;
};

}  // namespace baton::worker
