// Quantities as people read and type them. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::cli {

// "843 us", "12.4 ms", "1.53 s", "4 min 10 s": three significant digits.
std::string ShowSeconds(double seconds);
// "512 B", "1.5 MiB": powers of 1024.
std::string ShowBytes(int64_t bytes);
// "1,234,567".
std::string ShowCount(int64_t count);
// "1.24 B", "350 M": for parameters.
std::string ShowMagnitude(double count);

// "300ms", "2s", "1.5m", "1h"; a bare number is seconds. INVALID_ARGUMENT says what is understood.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);
// "512MiB", "2GiB", "1GB", "4096": B, KiB/MiB/GiB/TiB (powers of 1024), KB/MB/GB/TB (powers of 1000).
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

}  // namespace baton::cli
