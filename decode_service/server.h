// DecodeServer: a decode worker put together: runtime, scheduler, service. main() runs one per
// process, the in-process relay runs one beside others. Start, Drain and the destructor: any one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "decode_service/link_check.h"
#include "decode_service/scheduler.h"
#include "worker/flags.h"

namespace baton::decode_service {

struct ServerOptions {
  worker::Options worker;
  // worker_id and incarnation are filled in by Start.
  SchedulerOptions scheduler;
  // A rule for this worker and for the routers that hear of it, in place of scheduler.local_prefill_tokens;
  // empty: routers choose by predicted seconds.
  std::optional<int64_t> local_prefill_tokens;
  // As SpeculationOf takes it.
  std::string speculation = "auto";
  // A folder with a smaller model of the same tokenizer, which drafts answers; empty: none.
  std::string draft_model;
  // A copy of the model's own weights in 4 bits drafts answers. At most one of the two.
  bool self_draft = false;
  LinkCheckOptions link_check;
};

class DecodeServer {
 public:
  // Loads the model and listens. With peers to test the link with, it takes work once a test has passed.
  static absl::StatusOr<std::unique_ptr<DecodeServer>> Start(ServerOptions options);
  // Refuses new work, waits up to `grace` for what runs, then ends it (UNAVAILABLE) and stops listening.
  ~DecodeServer();
  void Drain(absl::Duration grace);

  const std::string& address() const;
  // Only if it was given somewhere to listen.
  const std::string& metrics_address() const;

 private:
  struct Parts;
  explicit DecodeServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::decode_service
