// The exit codes of `baton`, and how a command reports that it failed.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"

namespace baton::cli {

inline constexpr int kExitOk = 0;
// Failed: a server can't be reached, a request was refused.
inline constexpr int kExitError = 1;
// The command line is wrong.
inline constexpr int kExitUsage = 2;

inline int Fail(const std::string& message) {
  std::fprintf(stderr, "baton: %s\n", message.c_str());
  return kExitError;
}
inline int Fail(const absl::Status& status) { return Fail(std::string(status.message())); }

inline int Misused(const std::string& message) {
  std::fprintf(stderr, "baton: %s\n", message.c_str());
  return kExitUsage;
}

}  // namespace baton::cli
