// Checks for failures that can be known before a process is started, so that they are reported once and at
// once. They look at the machine and change nothing, except that they create folders.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton::cli {

// OK if a server could listen on host:port now. `flag` is named in the error, which says what to do. Port 0
// and unix: are left to the server.
absl::Status CanListen(const std::string& flag, const std::string& address);

// OK if `path` could be written, by a draft beside it that takes its name.
absl::Status CanReplaceFile(const std::string& flag, const std::string& path);

// OK if `folder` exists or could be created, and files can be written there.
absl::Status CanFillFolder(const std::string& flag, const std::string& folder);

}  // namespace baton::cli
