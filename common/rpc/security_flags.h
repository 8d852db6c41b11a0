// The flags behind SecurityOptions, the same for every binary. For main() and what it calls.
#pragma once

#include "absl/status/status.h"
#include "common/rpc/security_options.h"

namespace CLI {
class App;
}

namespace baton::rpc {

// INVALID_ARGUMENT: flags that contradict one another, whatever is in the files.
absl::Status CheckFlags(const SecurityOptions& options);

// The rest bind the flags to `options`, which outlives the parse.

// Routers and workers: --tls-cert, --tls-key, --tls-ca, --tls-peer-name, --fleet-key-file.
void AddFleetFlags(CLI::App& app, SecurityOptions& options);
// Servers that clients call: --tls-client-ca.
void AddPublicEndpointFlags(CLI::App& app, SecurityOptions& options);
// The gateway: --tls-cert and --tls-key, which it shows to its clients and to the router, and those of
// clients.
void AddGatewayFlags(CLI::App& app, SecurityOptions& options);
// Clients: --tls-ca, --tls-cert, --tls-key, --tls-server-name, --api-key-file.
void AddClientFlags(CLI::App& app, SecurityOptions& options);

}  // namespace baton::rpc
