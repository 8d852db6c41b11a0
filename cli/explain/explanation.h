// The text of `baton explain`: the tokens of a prompt with their ids, and how each token of the answer was
// chosen. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "baton/v1/generation.pb.h"
#include "cli/show/terminal.h"

namespace baton::cli {

struct PromptToken {
  int32_t id = 0;
  std::string bytes;
};

// A token's bytes in quotes. What a terminal would not show, or would obey, is written as an escape.
std::string ShowPiece(std::string_view bytes, const Terminal& terminal);

// All tokens, those whose KV was cached before the others. cached: how many, from the first one on.
std::string RenderPrompt(std::span<const PromptToken> tokens, int64_t cached, const Terminal& terminal);

// The KV that was computed for the prompt and kept, at the size of a token that the blocks on the link had.
// Empty: none came over a link, so the size is not known.
std::string RenderKv(const v1::Finished& finished, const Terminal& terminal);

// One token of the answer, the `number`th: what each filter left, the likeliest ones, the random number.
std::string RenderTrace(int64_t number, const v1::SamplingTrace& trace, const Terminal& terminal);

}  // namespace baton::cli
