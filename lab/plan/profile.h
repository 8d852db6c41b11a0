// Profile: how fast a prefill and a decode worker are, as measured (`baton bench --profile`), and how big
// their KV is. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::lab::plan {

struct Profile {
  // Prefill of u tokens after c cached ones: base + token * u + pair * u * (c + u / 2) seconds.
  double prefill_base = 0;
  double prefill_token = 0;
  double prefill_pair = 0;
  // Decode step: base + sequence * batch + context * (tokens of context of all) seconds.
  double step_base = 0;
  double step_sequence = 0;
  double step_context = 0;
  // Bytes per second, each way, of one worker, and seconds of a hand-off besides. Absent: not measured, and
  // left out of the plan.
  std::optional<double> link_bandwidth;
  double link_latency = 0;
  int64_t kv_bytes_per_token = 0;

  double PrefillSeconds(double uncached, double cached) const;
  double StepSeconds(double batch, double context) const;
};

// A JSON object with these names; other names are ignored, because a profile has more values than this
// command needs. INVALID_ARGUMENT names the field that is missing or invalid, or the slopes that are all
// zero.
absl::StatusOr<Profile> ParseProfile(std::string_view json);
// NOT_FOUND if the file can't be read.
absl::StatusOr<Profile> ReadProfile(const std::string& path);

}  // namespace baton::lab::plan
