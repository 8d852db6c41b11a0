// Names of members in a JSON Schema: patterns that match no other names than those in `properties` and
// `required` become parts of these properties' schemas. The compiler would expect further members with such a
// name, of which there are none, and lead an answer where nothing goes on. Plain functions, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace baton::output {

// The names that a pattern matches, if it says them all: it is anchored at both ends and has nothing but
// characters, classes of them, groups, alternatives and ?. Nothing if it says less, or more than `most`.
std::optional<std::set<std::string>> NamesOf(std::string_view pattern, size_t most);

// For one schema, not those inside it.
void TidyPatterns(nlohmann::ordered_json& schema);

}  // namespace baton::output
