// Formats of strings in a JSON Schema: those that are checked become exact, or stricter than their standard,
// and all others are annotations, as JSON Schema 2020-12 has them (section 7.2.3). Plain functions, any
// thread.
#pragma once

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace baton::output {

// For one schema, not those inside it, once its own patterns are translated: it may get a `pattern` in the
// compiler's syntax, and then one in `allOf`. INVALID_ARGUMENT if its `format` is no string. With `is_schema`
// false, it is one only if a $ref leads to it: what is malformed is then the compiler's to refuse.
absl::Status TidyFormats(nlohmann::ordered_json& schema, bool is_schema);

}  // namespace baton::output
