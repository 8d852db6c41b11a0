// The flag behind Keepalive, the same for routers and workers. It is for tests, on machines that may leave a
// process without a processor for longer than the defaults allow, and is not shown by --help. For main() and
// what it calls.
#pragma once

#include <optional>

#include "common/rpc/channel.h"

namespace CLI {
class App;
}

namespace baton::rpc {

// --fleet-keepalive SECONDS sets both times of `keepalive`, which outlives the parse.
void AddKeepaliveFlag(CLI::App& app, std::optional<Keepalive>& keepalive);

}  // namespace baton::rpc
