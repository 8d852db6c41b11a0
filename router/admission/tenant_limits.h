// TenantLimits: what one tenant may use. Plain data; 0 means no limit of its own, so that a tenant without
// limits is bounded by the totals alone.
#pragma once

#include <cstdint>

#include "common/base/named_type.h"

namespace baton::router::admission {

// Dense, given out by router::Tenants; a tenant's name keeps its id for the life of the process.
using TenantId = NamedType<uint32_t, struct TenantIdTag>;

// Lower runs first. What RequestOptions.priority may hold.
inline constexpr int kBestPriority = -10;
inline constexpr int kWorstPriority = 10;

// Bounds on waiting work. Tokens are prompt tokens plus the answer's expected ones.
struct QueueLimits {
  int64_t entries = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;
  friend bool operator==(const QueueLimits&, const QueueLimits&) = default;
};

struct TenantLimits {
  // Share of the fleet while others wait too.
  double weight = 1;
  QueueLimits queue;
  // Choices on workers at a time; further ones wait.
  int64_t concurrency = 0;
  int64_t requests_per_minute = 0;
  int64_t prompt_tokens_per_minute = 0;
  int64_t output_tokens_per_minute = 0;
  // Prompt and output together.
  int64_t tokens_per_day = 0;
  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

}  // namespace baton::router::admission
