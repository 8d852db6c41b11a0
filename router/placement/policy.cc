#include "router/placement/policy.h"

#include <fmt/format.h>

#include "router/placement/least_loaded.h"
#include "router/placement/prefix_affinity.h"
#include "router/placement/round_robin.h"

namespace baton::router::placement {

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kTurn:
      return "turn";
    case Reason::kLoad:
      return "load";
    case Reason::kCold:
      return "cold";
    case Reason::kPrefix:
      return "prefix";
    case Reason::kSpread:
      return "spread";
    case Reason::kFetch:
      return "fetch";
    case Reason::kLocal:
      return "local";
    case Reason::kNoPrefill:
      return "no_prefill";
  }
  return "unknown";
}

std::string_view NoFetchName(NoFetch why) {
  switch (why) {
    case NoFetch::kNone:
      return "";
    case NoFetch::kCannot:
      return "cannot";
    case NoFetch::kDearer:
      return "dearer";
    case NoFetch::kUnconfirmed:
      return "unconfirmed";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name, uint64_t seed,
                                                   const forecast::QueueTargets& targets, double slo_tpot) {
  if (name == "prefix_affinity") {
    return std::make_unique<PrefixAffinity>(PrefixAffinity::Options{.targets = targets, .slo_tpot = slo_tpot},
                                            seed);
  }
  if (name == "least_loaded") return std::make_unique<LeastLoaded>(seed);
  if (name == "round_robin") return std::make_unique<RoundRobin>();
  return absl::InvalidArgumentError(
      fmt::format("unknown placement policy \"{}\": use prefix_affinity, least_loaded or round_robin", name));
}

}  // namespace baton::router::placement
