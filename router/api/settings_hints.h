// Hints on a request's settings: those that are likely mistakes, or have no effect, in words for whoever
// wrote the request. Only settings that the client has sent are judged, not the model's defaults.
// docs/builds.md lists them.
#pragma once

#include <cstdint>
#include <vector>

#include "baton/v1/generation.pb.h"

namespace baton::router {

// `asked`: what the client has sent. `temperature`: what is used. `free_text`: no constraint holds the
// answer.
std::vector<v1::Warning> HintsOn(const v1::SamplingParams& asked, float temperature, bool free_text);
// stop.max_tokens was lowered to the most that the operator allows.
v1::Warning LoweredMaxTokens(uint32_t asked, uint32_t most);

}  // namespace baton::router
