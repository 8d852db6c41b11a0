// RawArguments: the grammar of a call's arguments where a format does not write them as one JSON object: a
// value between tags for each, or the keyword arguments of a call in Python. A string between tags is its
// text up to the closing tag; every other value is JSON (in Python: True, False and None as well), and so is
// a string of which the schema says more than its length or its values. Pure functions, any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "text/output/marker_table.h"

namespace baton::output {

// True if a parameter whose schema is `property`, in a tool's `schema`, is written between tags as its text.
// Its reader has to know: a text may look like a number.
bool IsPlainText(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& property);

// A grammar that begins with "start: ", whose other names begin with those of `tool`, a number. `schema`: of
// type object. Members come in the order of its properties; without properties, any are. INVALID_ARGUMENT
// names the keyword that cannot be enforced, or the parameter that the format cannot write.
absl::StatusOr<std::string> RawArguments(const MarkerTable& markers, const nlohmann::ordered_json& schema,
                                         int tool);

}  // namespace baton::output
