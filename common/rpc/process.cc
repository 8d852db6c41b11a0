#include "common/rpc/process.h"

#include <spdlog/spdlog.h>

#include <CLI/App.hpp>
#include <cstdio>

#include "common/command_line/parse.h"
#include "common/rpc/lifecycle.h"
#include "common/rpc/security_flags.h"

namespace baton::rpc {

void BeginProcess() {
  SkipLockOrderChecks();
  CatchStopSignals();
}

void AddProcessFlags(CLI::App& app, ProcessOptions& options) {
  app.add_option("--drain-seconds", options.drain_seconds, "Time for running work after SIGTERM")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--exit-with-parent", options.exit_with_parent, "Leave when standard input ends");
  app.add_option("--log-level", options.log_level, "Lowest level that is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
}

int RunProcess(const std::string& role, const ProcessOptions& options, const SecurityOptions& security,
               const std::function<absl::StatusOr<Serving>()>& start) {
  absl::Status flags = CheckFlags(security);
  if (flags.ok()) flags = SetUpLogging(role, options.log_level);
  if (!flags.ok()) {
    std::fprintf(stderr, "baton-%s: %s\n", role.c_str(), std::string(flags.message()).c_str());
    return command_line::kExitMisused;
  }
  const absl::StatusOr<Serving> server = start();
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return 1;
  }
  AnnounceReady(server->addresses);
  WaitForStop(options.exit_with_parent);
  spdlog::info("draining: running work has {} s", options.drain_seconds);
  server->drain(absl::Seconds(options.drain_seconds));
  return 0;
}

}  // namespace baton::rpc
