// The flags of baton-router, and what they come to. For main() only.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/process.h"
#include "router/router.h"

namespace CLI {
class App;
}

namespace baton::router {

// The flags as they were written.
struct Flags {
  RouterOptions options;  // those that need no reading
  RouterOptions::Model model;
  std::string models_file;
  std::string metrics_listen = "127.0.0.1:0";
  std::string store, store_password_file;
  double queue_seconds = 120, resolve_seconds = 5, stall_seconds = 30, connection_seconds = 0;
  double ping_after = absl::ToDoubleSeconds(options.client_keepalive.interval);
  double ping_timeout = absl::ToDoubleSeconds(options.client_keepalive.timeout);
  std::optional<double> default_ttft;  // seconds; 0: any time
  std::optional<rpc::Keepalive> keepalive;
  rpc::ProcessOptions process;
};

// Binds the flags to `flags`, which outlives the parse.
void AddFlags(CLI::App& app, Flags& flags);

// Once they are parsed. INVALID_ARGUMENT: flags that contradict one another; FAILED_PRECONDITION: a file that
// they name can't be read.
absl::StatusOr<RouterOptions> OptionsOf(const Flags& flags);

}  // namespace baton::router
