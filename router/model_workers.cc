#include "router/model_workers.h"

#include <utility>

#include "common/base/status.h"

namespace baton::router {

ModelWorkers::ModelWorkers(Options options, std::unique_ptr<placement::Policy> policy,
                           telemetry::Metrics& metrics, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      probe_(metrics, options_.slo, options_.label),
      index_({.max_bytes = options_.index_bytes}),
      fleet_(options_.fleet, probe_, &index_),
      dispatcher_(options_.dispatcher, fleet_, std::move(policy), clock, probe_, &index_) {
  if (!options_.vllm_name.empty()) probe_.NameAsVllm(options_.vllm_name);
}

absl::Status ModelWorkers::Start(std::function<void()> changed) {
  dispatcher_.SetServesListener(changed);
  fleet_.SetListener([this, changed = std::move(changed)] {
    dispatcher_.Pump();
    changed();
  });
  BATON_ASSIGN_OR_RETURN(
      discovery_, discovery::Discovery::Open(options_.finding, nullptr, clock_, [this](const auto& found) {
        // In this order: the fleet isn't settled before new endpoints have answered.
        watcher_->Follow(found.decode, found.prefill);
        fleet_.SetListing({.complete = found.complete, .trouble = found.trouble});
      }));
  watcher_ = std::make_unique<fleet::Watcher>(fleet_, options_.keepalive, options_.security,
                                              [this] { discovery_->Hurry(); });
  discovery_->Start();
  dispatcher_.StartTicking();
  return absl::OkStatus();
}

void ModelWorkers::Stop() {
  // Discovery tells the watcher what to follow, so it ends first.
  if (discovery_ != nullptr) discovery_->Stop();
  watcher_ = nullptr;
  dispatcher_.StopTicking();
}

}  // namespace baton::router
