#include "router/api/load_report.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace baton::router {
namespace {

// A limit, a wrong request or a client that went away is no fault of the service.
bool IsFault(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsInternal(status) || absl::IsUnknown(status) ||
         absl::IsDataLoss(status);
}

}  // namespace

LoadReport::LoadReport(Options options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), since_(clock.Now()), before_(options_.sample()) {}

std::string LoadReport::OnEnded(const absl::Status& status) {
  xds::data::orca::v3::OrcaLoadReport report;
  Sample before;
  absl::Duration period;
  {
    absl::MutexLock lock(&mutex_);
    ++ended_;
    if (IsFault(status)) ++failed_;
    period = clock_.Now() - since_;
    if (period < kPeriod) return report_;
    const double seconds = absl::ToDoubleSeconds(period);
    report.set_rps_fractional(static_cast<double>(std::exchange(ended_, 0)) / seconds);
    report.set_eps(static_cast<double>(std::exchange(failed_, 0)) / seconds);
    since_ += period;
    before = before_;
  }
  // Without the lock: others take theirs in it. No other call comes here for a period.
  const Sample now = options_.sample();
  const double cpu = absl::FDivDuration(now.cpu - before.cpu, period * options_.cores);
  const double busy = absl::FDivDuration(now.busy - before.busy, period * options_.threads);
  report.set_cpu_utilization(cpu);
  report.set_application_utilization(std::max(cpu, std::min(busy, 1.0)));
  (*report.mutable_named_metrics())["kv_used"] = now.kv_used;
  (*report.mutable_named_metrics())["queue"] = static_cast<double>(now.waiting);
  absl::MutexLock lock(&mutex_);
  before_ = now;
  report_ = report.SerializeAsString();
  return report_;
}

absl::Duration ProcessCpu() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::DurationFromTimespec(used);
}

void AddLoad(const std::string& report, grpc::ServerContextBase* context) {
  if (!report.empty()) context->AddTrailingMetadata(kLoadTrailer, report);
}

}  // namespace baton::router
