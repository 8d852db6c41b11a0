// RigFetchClient: a fetch's call over a Wire of the rig, to one of its prefill workers. One caller's; one
// thread.
#pragma once

#include <memory>
#include <string>

#include "tests/fault/rig.h"
#include "transfer/fetch/fetch_client.h"

namespace baton::fault {

class RigFetchClient final : public fetch::FetchClient {
 public:
  RigFetchClient(Rig& rig, Node& caller) : rig_(rig), caller_(caller) {}

  std::unique_ptr<rpc::EventCall> Call(const std::string& address, fleet::v1::FetchRequest request,
                                       absl::Duration patience, const telemetry::TraceContext& trace,
                                       Callbacks callbacks) override;

 private:
  Rig& rig_;
  Node& caller_;
};

}  // namespace baton::fault
