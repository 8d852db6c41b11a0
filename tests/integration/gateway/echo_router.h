// EchoRouter: a real gRPC server that knows no service and answers every method: what it is sent comes back,
// and metadata says what else is to happen. Any thread.
//   "x-ask: head"       the request's metadata comes back before the first message
//   "x-code: N"         the status at the end, with "x-code-details-bin" as its details
//   "x-flood: N"        N messages as long as the first one, as fast as they are taken
//   "x-silent: 1"       nothing, until the client is gone
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace baton::gateway {

class EchoRouter {
 public:
  EchoRouter();
  ~EchoRouter();

  std::string address() const;
  // Messages written so far, and calls that the client gave up; waits for so many of the latter.
  int written() const;
  bool WaitForCancelled(int count) const;
  // The last call's deadline.
  absl::Time deadline() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace baton::gateway
