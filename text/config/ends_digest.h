// EndsDigest: the set of tokens that end a model's answers, as 32 bytes, for router and worker to compare.
// Pure function, any thread.
#pragma once

#include <span>
#include <string>

#include "common/base/ids.h"

namespace baton::model {

// SHA-256 (32 bytes) of the set, whatever the order and however often an id is named: the ids in ascending
// order, each once, as 4 bytes, little endian. The empty set has a digest, too. `ends`: ModelConfig::eos,
// which is what a worker stops at.
std::string EndsDigest(std::span<const TokenId> ends);

}  // namespace baton::model
