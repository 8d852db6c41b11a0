// The words that clients have for how an answer is drafted, made of the names in baton.v1. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/v1/inference.pb.h"

namespace baton::rpc {

// All but the unspecified one, as in the decode worker's --speculation: "off", "past-answers".
std::vector<std::string> SpeculationWords();
// Nothing: it is none of them.
std::optional<v1::Speculation> SpeculationOf(std::string_view word);

}  // namespace baton::rpc
