// The tenants file: JSON that says who may call and how much. Read strictly: what is unknown, double or out
// of range refuses the whole file with the place and the reason, and never shows a secret. Pure; any thread.
//
//   {"tenants": [{
//      "name": "search",                          letters, digits, . _ -
//      "keys": [{"id": "...", "sha256": "...",    as `baton key new` prints them
//                "not_after": "2027-01-31T00:00:00Z"}],
//      "certificates": ["search.example.org"],    names in client certificates
//      "anonymous": false,                        callers without either; at most one tenant
//      "disabled": false,
//      "control_tokens_in_text": false,           true: "<|im_end|>" in a message ends the turn
//      "moderation": {"policy": "block"},         at least; absent: as the router has it (moderation/rules.h)
//      "salt": "...",                             16 bytes or more; absent: made from the name
//      "weight": 1, "concurrency": 0, "best_priority": -10,
//      "requests_per_minute": 0, "prompt_tokens_per_minute": 0, "output_tokens_per_minute": 0,
//      "tokens_per_day": 0,
//      "queue": {"requests": 0, "tokens": 0, "bytes": 0}}]}      0 or absent: no limit
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/digest.h"
#include "router/admission/tenant_limits.h"
#include "router/moderation/rules.h"

namespace baton::router {

// Fewer bytes of secret could be guessed.
inline constexpr size_t kMinSaltBytes = 16;
inline constexpr int64_t kMaxTenantsFileBytes = 16 << 20;

// INVALID_ARGUMENT says what a tenant's name may be, if `name` is none.
absl::Status CheckTenantName(std::string_view name);

struct TenantEntry {
  struct Key {
    std::string id;
    Sha256Digest digest;
    absl::Time not_after = absl::InfiniteFuture();
  };
  std::string name;
  std::vector<Key> keys;
  std::vector<std::string> certificates;
  bool anonymous = false;
  bool disabled = false;
  bool control_tokens_in_text = false;
  std::optional<moderation::Rules> moderation;
  std::optional<std::string> salt;
  int best_priority = admission::kBestPriority;
  admission::TenantLimits limits;
};

// `file` is for messages.
absl::StatusOr<std::vector<TenantEntry>> ParseTenants(std::string_view text, std::string_view file);

}  // namespace baton::router
