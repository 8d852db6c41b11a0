// Tells what the system says of a process: a number of /proc/PID/status in bytes, and how many descriptors it
// has open. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/base/check.h"

namespace baton {

// For example "VmRSS". CHECK-fails if there is no such process or field.
inline int64_t StatusOf(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  BATON_CHECK(false) << field;
  return 0;
}

inline int64_t DescriptorsOf(pid_t pid) {
  const std::filesystem::directory_iterator open("/proc/" + std::to_string(pid) + "/fd");
  return std::distance(begin(open), end(open));
}

}  // namespace baton
