// A worker process from start to end: logging, the model, the ready line, then waiting to be told to leave,
// draining, and leaving with 0. For main() only.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/command_line/parse.h"
#include "common/rpc/lifecycle.h"
#include "common/rpc/security_flags.h"
#include "spdlog/spdlog.h"
#include "worker/flags.h"

namespace baton::worker {

// start() makes the server: an object with address(), metrics_address() and Drain(grace). Returns the exit
// code.
template <typename Server>
int RunProcess(const std::string& role, const Options& options,
               const std::function<absl::StatusOr<std::unique_ptr<Server>>()>& start) {
  absl::Status flags = rpc::CheckFlags(options.security);
  if (flags.ok()) flags = rpc::SetUpLogging(role, options.log_level);
  if (!flags.ok()) {
    std::fprintf(stderr, "baton-%s: %s\n", role.c_str(), std::string(flags.message()).c_str());
    return command_line::kExitMisused;
  }
  auto server = start();
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return 1;
  }
  rpc::AnnounceReady({{"grpc", (*server)->address()}, {"metrics", (*server)->metrics_address()}});
  rpc::WaitForStop(options.exit_with_parent);
  spdlog::info("draining for up to {} s", options.drain_grace);
  (*server)->Drain(absl::Seconds(options.drain_grace));
  return 0;
}

}  // namespace baton::worker
