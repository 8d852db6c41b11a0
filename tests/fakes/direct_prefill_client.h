// DirectPrefillClient: prefill workers in this very thread, without a network: real schedulers on engines of
// their own, whose events are delivered one by one when the test pumps, and damaged on the way as the script
// says.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "decode_service/prefill_client.h"
#include "prefill_service/scheduler.h"
#include "transfer/host_link.h"

namespace baton::testing {

class DirectPrefillClient final : public decode_service::PrefillClient {
 public:
  // Sees every event of the call to `address` before the decode worker does. Returns an error to end the call
  // there (a dead worker, a broken link), or OK; it may change the event, or repeat it through `again`.
  using Fault = std::function<absl::Status(int index, fleet::v1::PrefillEvent& event, bool& again)>;

  DirectPrefillClient() = default;

  // A worker that answers at `address`. `engine` outlives the client.
  void AddWorker(const std::string& address, engine::Engine& engine,
                 prefill_service::SchedulerOptions options);
  void SetFault(const std::string& address, Fault fault) { workers_.at(address)->fault = std::move(fault); }

  std::unique_ptr<decode_service::PrefillCall> Call(const std::string& address,
                                                    fleet::v1::PrefillRequest request, absl::Time deadline,
                                                    const telemetry::TraceContext& trace,
                                                    Callbacks callbacks) override;

  // One step of every worker, and one event of every call that waits for one. Returns whether anything
  // happened.
  bool Pump();
  size_t calls_started() const { return calls_started_; }
  size_t live_calls() const { return calls_.size(); }

 private:
  struct Worker {
    MonotonicClock clock;
    telemetry::Metrics metrics;
    transfer::HostLinkSender link;
    std::unique_ptr<prefill_service::Probe> probe;
    engine::Engine* engine;
    std::unique_ptr<prefill_service::Scheduler> scheduler;
    Fault fault;
  };
  struct LiveCall {
    Worker* worker = nullptr;
    Callbacks callbacks;
    std::deque<fleet::v1::PrefillEvent> events;
    bool finished = false;
    absl::Status status;
    bool wants_next = true;
    bool let_go = false;
    int delivered = 0;
  };
  class Handle;

  std::map<std::string, std::unique_ptr<Worker>> workers_;
  std::map<prefill_service::JobId, std::shared_ptr<LiveCall>> calls_;
  prefill_service::JobId next_id_ = 1;
  size_t calls_started_ = 0;
};

}  // namespace baton::testing
