// What can be known to fail before a process is started, so that it is said once and at once. Looks at the
// machine; changes nothing but folders that it makes.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton::cli {

// OK if a server could listen on host:port now. `flag` is named in the error, which says what to do. Port 0
// and unix: are left to the server.
absl::Status CanListen(const std::string& flag, const std::string& address);

// OK if `path` could be written, by a draft beside it that takes its name.
absl::Status CanReplaceFile(const std::string& flag, const std::string& path);

// OK if `folder` is there, or could be made, and takes files.
absl::Status CanFillFolder(const std::string& flag, const std::string& folder);

}  // namespace baton::cli
