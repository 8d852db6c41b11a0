// Patterns of JSON schemas: regular expressions of ECMA-262 (with the flag u), as JSON Schema has them, in
// the syntax of the grammar's compiler, whose `.`, `\s`, classes and escapes mean other things.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton::output {

// The same language in the compiler's syntax. As engines do, it takes what ECMA-262's appendix B allows
// besides: escaped punctuation, and `]`, `{` and `}` that stand for themselves. INVALID_ARGUMENT for what is
// no regular expression there, or names an earlier group, or U+0000, which no class has either. Look-around
// is left to the compiler, which refuses it. Source: ECMA-262, 22.2.1.
absl::StatusOr<std::string> CompilerPattern(std::string_view pattern);

// Translates `pattern` and the names of `patternProperties` of one schema, not of those inside it. With
// `is_schema` false, it is one only if a $ref leads to it: what can't be translated is then refused by the
// compiler, and is nothing to whoever does not refer to it.
absl::Status TranslatePatterns(nlohmann::ordered_json& schema, bool is_schema);

}  // namespace baton::output
