// The flags of baton-gateway. For main() only.
#pragma once

#include <string>

#include "common/rpc/process.h"
#include "gateway/gateway.h"

namespace CLI {
class App;
}

namespace baton::gateway {

struct Flags {
  GatewayOptions options;
  std::string metrics_listen = "127.0.0.1:0";
  rpc::ProcessOptions process;
};

// Binds the flags to `flags`, which outlives the parse.
void AddFlags(CLI::App& app, Flags& flags);

}  // namespace baton::gateway
