// ChunkPlanner: how prompts are cut into chunks for one step. A prompt gets at most a chunk's rows, all
// prompts together stay within the token budget and, while answers wait for their next token, within the
// seconds that the step may still take. The schedulers of prefill and decode workers ask it for each prompt,
// in their order of service. Pure bookkeeping; one object per step.
#pragma once

#include <cstdint>
#include <limits>

#include "protocol/forecast/step_forecast.h"

namespace baton::engine {

struct ChunkLimits {
  int64_t chunk_tokens = 0;  // rows of one prompt
  int64_t token_budget = 0;  // rows of all prompts
  // Seconds that the rows of prompts may add to the step. The first prompt gets a block of rows in any case,
  // so that prompts make progress; otherwise chunks are cut to whole blocks. Infinite: no bound.
  double seconds = std::numeric_limits<double>::infinity();
  // A chunk that does not end its prompt has whole blocks of rows, because a block is shipped only once.
  bool whole_blocks = false;
};

class ChunkPlanner {
 public:
  // cost: what a row and a pair of a row and a token that it attends to take, for `limits.seconds`.
  explicit ChunkPlanner(const ChunkLimits& limits, const forecast::StepCost& cost = {})
      : limits_(limits), cost_(cost) {}

  // Rows of the next prompt, of which `computed` tokens are computed and `remaining` (at least 1) are not.
  // 0: the step has no room for this prompt, and so for no later one.
  int64_t Take(int64_t computed, int64_t remaining);

 private:
  ChunkLimits limits_;  // what is left of them
  const forecast::StepCost cost_;
  bool taken_ = false;  // a prompt has rows in this step
};

}  // namespace baton::engine
