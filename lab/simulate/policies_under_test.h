// Policies under test: the policies that `baton simulate` knows by name. Plain data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/simulate/fleet_model.h"
#include "lab/simulate/simulation.h"

namespace baton::lab::simulate {

// Every name, in the order in which a table shows them; "bound" is last.
const std::vector<std::string>& PolicyNames();
// Ours orders its queues by `targets`, as --slo-ttft and --tail-share of routers and prefill workers say, and
// all keep steps with rows of prompts within `slo_tpot` seconds, as --slo-tpot of decode workers does.
// INVALID_ARGUMENT lists the names.
absl::StatusOr<PolicyUnderTest> FindPolicy(
    std::string_view name, const FleetModel& model,
    const forecast::QueueTargets& targets = forecast::QueueTargets::For(forecast::kDefaultSloTtft),
    double slo_tpot = forecast::kDefaultSloTpot);

}  // namespace baton::lab::simulate
