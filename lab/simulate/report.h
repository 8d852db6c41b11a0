// Report: what several policies came to, for people and for programs. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/simulate/fleet_model.h"
#include "lab/simulate/measures.h"

namespace baton::lab::simulate {

// Policies side by side at one rate, one line each; columns are as wide as what they hold, two blanks apart.
std::string RenderTable(const std::vector<Measures>& policies);

nlohmann::ordered_json ToJson(const Measures& measures);

// Each request that was not refused, in the order of arrival, one JSON object a line: the fields of
// `baton bench --record`.
std::string RenderRequests(const RunResult& run);

}  // namespace baton::lab::simulate
