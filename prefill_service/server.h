// PrefillServer: a prefill worker put together: runtime, scheduler, service. main() runs one
// per process, the in-process relay runs one beside others. Start, Drain and the destructor: any one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "prefill_service/scheduler.h"
#include "worker/flags.h"

namespace baton::prefill_service {

struct ServerOptions {
  worker::Options worker;
  SchedulerOptions scheduler;
};

class PrefillServer {
 public:
  // Loads the model and listens.
  static absl::StatusOr<std::unique_ptr<PrefillServer>> Start(ServerOptions options);
  // Refuses new work, waits up to `grace` for what runs, then ends it (UNAVAILABLE) and stops listening.
  ~PrefillServer();
  void Drain(absl::Duration grace);

  const std::string& address() const;
  // Only if it was given somewhere to listen.
  const std::string& metrics_address() const;

 private:
  struct Parts;
  explicit PrefillServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::prefill_service
