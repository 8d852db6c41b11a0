// A whole answer as `--json` prints it, and one number for all bits that were computed for it. Pure
// functions, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "baton/v1/inference.pb.h"

namespace baton::cli {

// One CRC32C over the digests of all choices and steps, in order: equal for two runs that computed the same
// bits.
uint32_t LogitsDigest(const v1::ChatUnaryResponse& answer);

// The whole answer; seconds, tokens, bytes.
nlohmann::ordered_json AnswerJson(const v1::ChatUnaryResponse& answer);

}  // namespace baton::cli
