// Segments of prompts: their tokens are functions of a seed and the segment's name, so that two prompts that
// begin with the same segments begin with the same tokens. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/bench/draws.h"

namespace baton::lab::bench {

struct Segment {
  // kPrefixTokens, kTurnTokens or kTraceTokens.
  Purpose source = Purpose::kTurnTokens;
  // Which prefix group, turn or block of the trace.
  uint64_t id = 0;
  int64_t tokens = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

// Appends the segment's tokens, uniform over [0, vocabulary). A shorter segment of the same name is a prefix
// of a longer one.
void AppendTokens(const Segment& segment, uint64_t seed, int32_t vocabulary, std::vector<int32_t>* tokens);

int64_t TokensIn(const std::vector<Segment>& segments);

}  // namespace baton::lab::bench
