// Summary: the table under an answer. Prompt and cache, how the KV travelled, TTFT in its
// six phases (which add up), the pace after it. Pure functions, any thread.
#pragma once

#include <array>
#include <string>

#include "baton/v1/generation.pb.h"
#include "cli/show/terminal.h"

namespace baton::cli {

// One choice. Several lines, each ended.
std::string RenderSummary(const v1::Finished& finished, const Terminal& terminal);

// "end of answer", "stop string \"\\n\"", "max_tokens reached".
std::string DescribeReason(const v1::Finished& finished);

// Six shares of a bar of `cells` cells, in Timing's order, by largest remainder: they add up to `cells`, and
// a phase that took any time at all has a cell as long as there are enough.
std::array<int, 6> PhaseCells(const v1::Timing& timing, int cells);

}  // namespace baton::cli
