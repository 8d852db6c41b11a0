// How a Baton process starts and ends: logging set up once, one line on standard output when it is ready
// (supervisors and tests read it), and SIGINT or SIGTERM turned into an orderly end. For main() only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace baton::rpc {

// A standard stream that can't be written to must not end the process: SIGPIPE is ignored, and
// a stream that was closed before the start is /dev/null, so that no socket gets its number. Writing to it
// fails as before. Call first.
void PrepareStandardStreams();

// Logs go to standard error, as "time level role: text". level: debug, info, warn or error. A line that can't
// be written is lost and counted (telemetry/process.h).
absl::Status SetUpLogging(const std::string& role, const std::string& level);

// Turns off Abseil's checks of lock order, which distributions build in: each lock of each thread then goes
// through one table under one spin lock. Tests keep them; servers can't afford them.
void SkipLockOrderChecks();

// Blocks SIGINT and SIGTERM in this thread and all that it starts later, so that WaitForStop gets them;
// prepares the standard streams. Call first.
void CatchStopSignals();

// Waits for SIGINT or SIGTERM. With `until_input_ends`, also for the end of standard input: a child of a
// supervisor leaves when its parent dies, however that dies.
void WaitForStop(bool until_input_ends);

// "ready grpc=127.0.0.1:4000 metrics=127.0.0.1:4001", one line, flushed.
void AnnounceReady(const std::vector<std::pair<std::string, std::string>>& addresses);

}  // namespace baton::rpc
