// RigPrefillClient: the hand-off's call over a Wire of the rig. One decode worker's; one thread.
#pragma once

#include <memory>
#include <string>

#include "decode_service/prefill_client.h"
#include "tests/fault/rig.h"

namespace baton::fault {

class RigPrefillClient final : public decode_service::PrefillClient {
 public:
  RigPrefillClient(Rig& rig, DecodeNode& decode) : rig_(rig), decode_(decode) {}

  std::unique_ptr<decode_service::PrefillCall> Call(const std::string& address,
                                                    fleet::v1::PrefillRequest request, absl::Time deadline,
                                                    const telemetry::TraceContext& trace,
                                                    Callbacks callbacks) override;

 private:
  Rig& rig_;
  DecodeNode& decode_;
};

}  // namespace baton::fault
