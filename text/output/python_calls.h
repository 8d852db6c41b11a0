// [f(a="x", b=[1, True]), g()] as calls with JSON arguments: names, keyword arguments and literals of Python,
// and nothing else of the language. Nesting is bounded. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/output/call_reader.h"

namespace baton::output {

// Nothing: the text is no such list.
std::optional<std::vector<Call>> ReadPythonCalls(std::string_view text);

}  // namespace baton::output
