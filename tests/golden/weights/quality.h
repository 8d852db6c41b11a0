// Texts over which a model with other weights, or another precision of KV, is compared with itself as stored.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "lab/eval/divergence.h"

namespace baton {

// The conversations of a folder's own evaluation, eval/recall.jsonl: every tenth, as tokens.
std::vector<std::vector<TokenId>> Conversations(const std::string& folder);

// One line.
std::string Describe(const lab::Distance& distance);

}  // namespace baton
