// The frame of a server process, the same for all of them: its flags, logging, the ready line, the wait for
// SIGTERM, draining, and leaving with 0. For main() and what it calls.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security_options.h"

namespace CLI {
class App;
}

namespace baton::rpc {

struct ProcessOptions {
  std::string log_level = "info";
  bool exit_with_parent = false;
  // Seconds that running work may take after SIGTERM.
  double drain_seconds = 10;
};

// The defaults, with other seconds.
inline ProcessOptions DrainingFor(double seconds) {
  ProcessOptions options;
  options.drain_seconds = seconds;
  return options;
}

// Takes over signals and the standard streams (lifecycle.h). Call first.
void BeginProcess();

// --drain-seconds, --exit-with-parent and --log-level bind to `options`, which outlives the parse.
void AddProcessFlags(CLI::App& app, ProcessOptions& options);

// A server that listens.
struct Serving {
  // Name and address, for the ready line.
  std::vector<std::pair<std::string, std::string>> addresses;
  // Refuses new work, waits that long for what runs, and ends it.
  std::function<void(absl::Duration)> drain;
};

// From the parsed flags to the end. `start` makes the server, which lives as long as its `drain`. Returns the
// exit code: 0; 1: it can't start; 2 (command_line::kExitMisused): flags that contradict one another.
int RunProcess(const std::string& role, const ProcessOptions& options, const SecurityOptions& security,
               const std::function<absl::StatusOr<Serving>()>& start);

}  // namespace baton::rpc
