// Numbers of a JSON Schema: its bounds, steps and values are made such that the grammar compiler, which
// computes with doubles and 64-bit integers, enforces them, or are refused. No part of a bound is dropped: a
// bound that can't be had exactly is made stricter. Plain functions, any thread.
#pragma once

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace baton::output {

// For one schema, not those inside it: minimum, maximum, exclusiveMinimum, exclusiveMaximum (draft 4's
// booleans as well) and multipleOf, and all numbers in const and enum. INVALID_ARGUMENT names the keyword.
absl::Status TidyNumbers(nlohmann::ordered_json& schema);

// For a whole schema: refuses steps (multipleOf) of parts that the compiler may have to combine, and whose
// common multiple it could not hold.
absl::Status CheckSteps(const nlohmann::ordered_json& schema);

}  // namespace baton::output
