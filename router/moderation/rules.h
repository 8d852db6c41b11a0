// Rules: what an operator has set about moderation, for one tenant or for all that have none of their own. In
// the tenants file and in the models file:
//
//   "moderation": {"policy": "block",    "off", "score" or "block" (v1::Moderation.Policy)
//                  "input": false,       judge prompts too
//                  "fail_open": false,   a classifier that does not answer lets text pass
//                  "timeout_seconds": 10}  time that a verdict may take; 0.1 to 600
//
// Plain data; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/config/json_fields.h"

namespace baton::router::moderation {

// From the least to the most.
enum class Policy { kOff, kScore, kBlock };

struct Rules {
  Policy policy = Policy::kOff;
  bool input = false;
  bool fail_open = false;
  // A verdict that takes longer is given up.
  absl::Duration timeout = absl::Seconds(10);
  friend bool operator==(const Rules&, const Rules&) = default;
};

// `where` opens messages. INVALID_ARGUMENT for an unknown field or value.
absl::StatusOr<Rules> ParseRules(const model::Json& json, const std::string& where);

}  // namespace baton::router::moderation
