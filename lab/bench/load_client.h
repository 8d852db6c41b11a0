// LoadClient: thousands of streams at once, cheaply: gRPC's callback API, no thread per request, and time
// read when an event arrives, on gRPC's own threads. Start and CancelAll may be called on any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/base/clock.h"
#include "lab/bench/recorder.h"

namespace baton::rpc {
class Security;
}

namespace baton::lab::bench {

class LoadClient {
 public:
  // Streams are spread over `connections` connections in turn. `clock` outlives the client.
  LoadClient(const std::string& address, int connections, const Clock& clock,
             const rpc::Security* security = nullptr);
  // Cancels what is left and waits for it.
  ~LoadClient();

  // Sends the request now. `done` is called once, on a gRPC thread.
  void Start(v1::GenerateRequest request, absl::Duration timeout, std::function<void(Outcome)> done);
  void CancelAll();

 private:
  class Call;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace baton::lab::bench
