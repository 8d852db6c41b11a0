#include "tests/fuzz/trace_bytes.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "common/base/check.h"
#include "lab/bench/trace.h"

namespace baton::lab::bench {
namespace {

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

}  // namespace

absl::StatusOr<bool> FuzzTrace(std::span<const uint8_t> bytes) {
  const int fd = memfd_create("trace", MFD_CLOEXEC);
  BATON_CHECK(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto entries = ReadTrace(fmt::format("/proc/self/fd/{}", fd), 0);
  close(fd);
  if (!entries.ok()) {
    if (!absl::IsInvalidArgument(entries.status()) || entries.status().message().empty()) {
      return Unsound(entries.status().ToString());
    }
    return false;
  }
  double before = 0;
  for (const TraceEntry& entry : *entries) {
    if (!std::isfinite(entry.timestamp_ms) || entry.timestamp_ms < before) return Unsound("timestamp");
    before = entry.timestamp_ms;
    if (entry.input_tokens < 1 || entry.output_tokens < 0) return Unsound("lengths");
    const auto blocks = static_cast<int64_t>(entry.hash_ids.size());
    if ((blocks - 1) * kTraceBlockTokens >= entry.input_tokens ||
        blocks * kTraceBlockTokens < entry.input_tokens) {
      return Unsound("hash_ids");
    }
  }
  LooksBucketed(*entries);
  return true;
}

}  // namespace baton::lab::bench
