#include "router/placement/policy.h"

#include <fmt/format.h>

#include "router/placement/least_loaded.h"
#include "router/placement/round_robin.h"

namespace baton::router::placement {

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name, uint64_t seed) {
  if (name == "least_loaded") return std::make_unique<LeastLoaded>(seed);
  if (name == "round_robin") return std::make_unique<RoundRobin>();
  return absl::InvalidArgumentError(
      fmt::format("unknown placement policy \"{}\": use least_loaded or round_robin", name));
}

}  // namespace baton::router::placement
