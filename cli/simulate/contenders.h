// Contenders: the policies that `baton simulate` knows by name. Plain data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/simulate/fleet_model.h"
#include "cli/simulate/simulation.h"

namespace baton::cli::simulate {

// Every name, in the order in which a table shows them; "bound" is last.
const std::vector<std::string>& ContenderNames();
// INVALID_ARGUMENT lists the names.
absl::StatusOr<Contender> FindContender(std::string_view name, const FleetModel& model);

}  // namespace baton::cli::simulate
