// GrpcDecodeClient: Decode/Generate calls over the channels that the fleet keeps to its workers. Any thread.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "router/api/decode_client.h"

namespace baton::router {

class GrpcDecodeClient final : public DecodeClient {
 public:
  // Deadlines are on `clock`, which outlives the client.
  explicit GrpcDecodeClient(const Clock& clock) : clock_(clock) {}

  std::shared_ptr<DecodeCall> Call(const fleet::Worker& worker, baton::fleet::v1::DecodeRequest request,
                                   absl::Time deadline, const telemetry::TraceContext& trace,
                                   Callbacks callbacks) override;

 private:
  const Clock& clock_;
};

}  // namespace baton::router
