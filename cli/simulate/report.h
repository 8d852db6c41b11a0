// Report: what several policies came to, for people and for programs. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/simulate/fleet_model.h"
#include "cli/simulate/measures.h"

namespace baton::cli::simulate {

// Policies side by side at one rate, one line each.
std::string RenderTable(const std::vector<Measures>& policies);

nlohmann::ordered_json ToJson(const Measures& measures);

}  // namespace baton::cli::simulate
