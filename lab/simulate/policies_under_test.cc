#include "lab/simulate/policies_under_test.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "lab/simulate/baselines/baselines.h"
#include "router/placement/prefix_affinity.h"

namespace baton::lab::simulate {
namespace {

using router::placement::Policy;
using router::placement::PrefixAffinity;

std::function<std::unique_ptr<Policy>(uint64_t)> Ours(const forecast::QueueTargets& targets,
                                                      double slo_tpot) {
  return [targets, slo_tpot](uint64_t seed) {
    return std::make_unique<PrefixAffinity>(PrefixAffinity::Options{.targets = targets, .slo_tpot = slo_tpot},
                                            seed);
  };
}

}  // namespace

const std::vector<std::string>& PolicyNames() {
  static const auto& names = *new std::vector<std::string>{
      "round_robin",      "least_loaded",     "sglang",        "dynamo",          "llm-d",
      "mooncake",         "mooncake-fetch",   "mooncake-pool", "affinity-fifo",   "affinity-nofetch",
      "affinity-prefill", "affinity-anylink", "affinity-lru",  "prefix_affinity", "bound"};
  return names;
}

absl::StatusOr<PolicyUnderTest> FindPolicy(std::string_view name, const FleetModel& model,
                                           const forecast::QueueTargets& targets, double slo_tpot) {
  PolicyUnderTest under_test;
  under_test.targets = targets;
  under_test.slo_tpot = slo_tpot;
  under_test.name = std::string(name);
  if (name == "round_robin" || name == "least_loaded") {
    under_test.policy = [name = under_test.name](uint64_t seed) {
      auto policy = router::placement::MakePolicy(name, seed);
      BATON_CHECK(policy.ok()) << name;
      return *std::move(policy);
    };
  } else if (name == "sglang") {
    under_test.policy = [](uint64_t seed) { return std::make_unique<CacheAware>(seed); };
  } else if (name == "dynamo") {
    under_test.policy = [](uint64_t seed) { return std::make_unique<BlockCost>(seed); };
  } else if (name == "llm-d") {
    under_test.policy = [](uint64_t seed) { return std::make_unique<WeightedScores>(seed); };
  } else if (name == "mooncake" || name == "mooncake-fetch" || name == "mooncake-pool") {
    if (name == "mooncake-fetch") under_test.fetch = Fetch::kFromPrefill;
    if (name == "mooncake-pool") under_test.fetch = Fetch::kFromAll;
    const TtftEstimate::Truth truth = {
        .base = model.prefill_base,
        .token = model.prefill_token,
        .pair = model.prefill_pair,
        .transfer_base = model.link_latency,
        .transfer_token = static_cast<double>(model.kv_bytes_per_token) / model.link_bandwidth};
    under_test.policy = [truth, fetch = under_test.fetch != Fetch::kNever](uint64_t seed) {
      return std::make_unique<TtftEstimate>(truth, fetch, seed);
    };
  } else if (name == "prefix_affinity" || name == "affinity-fifo" || name == "affinity-nofetch" ||
             name == "affinity-lru" || name == "affinity-prefill" || name == "affinity-anylink") {
    under_test.policy = Ours(targets, slo_tpot);
    under_test.in_time = true;
    under_test.fetch = name == "affinity-nofetch"   ? Fetch::kNever
                       : name == "affinity-prefill" ? Fetch::kFromPrefill
                                                    : Fetch::kFromAll;
    under_test.tells_links = name != "affinity-anylink";
    if (name != "affinity-lru") under_test.eviction = kv::Eviction::kForecast;
    under_test.discipline = name == "affinity-fifo" ? Discipline::kFirstCome : Discipline::kVirtualDeadline;
  } else if (name == "bound") {
    under_test.policy = Ours(targets, slo_tpot);
    under_test.in_time = true;
    under_test.discipline = Discipline::kVirtualDeadline;
    under_test.shared_cache = true;
  } else {
    return absl::InvalidArgumentError(
        fmt::format("unknown policy \"{}\"; there are {}", name, absl::StrJoin(PolicyNames(), ", ")));
  }
  return under_test;
}

}  // namespace baton::lab::simulate
