// DecodeClient: calls to decode workers, as RequestDriver makes them. gRPC is one implementation
// (grpc_decode_client.h); the driver's tests have a scripted one.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "common/telemetry/trace_context.h"
#include "router/fleet/worker.h"

namespace baton::router {

// One running call. Any thread; no call waits.
class DecodeCall {
 public:
  virtual ~DecodeCall() = default;
  // Asks for the next event; once for each event, when it was dealt with. The first one is asked for already.
  virtual void Next() = 0;
  // Ends the call, any number of times. No further events; `done` follows.
  virtual void Cancel() = 0;
};

class DecodeClient {
 public:
  // `event` once per event that was asked for, then `done` exactly once; on any thread, possibly before Call
  // returns.
  struct Callbacks {
    std::function<void(baton::fleet::v1::DecodeEvent)> event;
    std::function<void(absl::Status)> done;
  };

  virtual ~DecodeClient() = default;
  // Starts the call, which says that it belongs to `trace`. `deadline` is on the router's clock.
  virtual std::shared_ptr<DecodeCall> Call(const fleet::Worker& worker,
                                           baton::fleet::v1::DecodeRequest request, absl::Time deadline,
                                           const telemetry::TraceContext& trace, Callbacks callbacks) = 0;
};

}  // namespace baton::router
