// The rope of a config.json: rope_theta, partial_rotary_factor, and rope_scaling or rope_parameters. Any
// thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "text/config/config.h"
#include "text/config/family.h"
#include "text/config/json_fields.h"

namespace baton::model {

// "default", "yarn": as config.json has it.
std::string_view NameOf(RopeScaling::Type type);

// Reads it into `config`, whose context and head_dim are known. A type or a field that is not known is
// refused by name.
absl::Status ReadRope(JsonFields& fields, const Family& family, ModelConfig& config);

}  // namespace baton::model
