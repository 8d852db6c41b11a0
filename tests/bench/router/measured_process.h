// MeasuredProcess: a child process of a benchmark, and what it takes of the machine, from /proc. Linux only.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/serve/child.h"

namespace baton::bench {

struct MeasuredProcess {
  pid_t pid = 0;

  // User and system, so far.
  double CpuSeconds() const;
  double RssMiB() const;
  // The most it ever was.
  double PeakRssMiB() const;
};

// Reads a child's output up to the end of the first line that begins so; ends this process if none comes.
std::string AwaitLine(const cli::Child& child, const std::string& beginning);
// The address of a server that says that it is ready.
std::string AwaitGrpcAddress(const cli::Child& child);

}  // namespace baton::bench
