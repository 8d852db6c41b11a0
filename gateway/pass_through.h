// PassThrough: gRPC calls of clients, on their way to a router: messages, metadata, trailers, deadlines and
// cancellation as they are, without knowing what they say. The next message of either side is asked for when
// the other side has taken the one before, so back-pressure reaches from end to end. What belongs to a
// connection stays on its side: the client's HTTP/2 ends here, the router's is gRPC's own.
#pragma once

#include <memory>

#include "gateway/http/call.h"
#include "gateway/probe.h"
#include "gateway/routers.h"

namespace baton::gateway {

class PassThrough {
 public:
  // `routers` and `probe` outlive the server's thread, `alive` is held by each call until its end.
  PassThrough(Routers& routers, Probe& probe) : routers_(routers), probe_(probe) {}

  void Start(std::shared_ptr<http::Call> call, std::shared_ptr<void> alive);

 private:
  Routers& routers_;
  Probe& probe_;
};

}  // namespace baton::gateway
