#include "common/rpc/keepalive_flag.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace baton::rpc {

void AddKeepaliveFlag(CLI::App& app, std::optional<Keepalive>& keepalive) {
  app.add_option_function<double>(
         "--fleet-keepalive",
         [&keepalive](const double& seconds) {
           keepalive = {.interval = absl::Seconds(seconds), .timeout = absl::Seconds(seconds)};
         },
         "Seconds of silence after which a peer is pinged, and seconds for its answer")
      ->check(CLI::Range(0.1, 3600.0))
      ->group("");
}

}  // namespace baton::rpc
