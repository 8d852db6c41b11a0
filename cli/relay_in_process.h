// A whole relay inside this process, for `--model DIR` instead of a server: a prefill worker, a decode
// worker and a router, with real gRPC over loopback between them.
#pragma once

#include "absl/status/statusor.h"
#include "cli/local_relay.h"

namespace baton::cli {

// Returns when it serves. Errors are ready to be shown.
absl::StatusOr<LocalRelay> StartRelayInProcess(const LocalRelayOptions& options);

}  // namespace baton::cli
