// Draws: the randomness of a load test. Every number is a function of (seed, what it is for, index), so that
// the same seed makes the same requests, in whatever order the answers come. Pure functions, any thread.
#pragma once

#include <cstdint>

namespace baton::lab::bench {

// Purposes of random numbers; each has a stream of its own.
enum class Purpose : uint32_t {
  kPromptLength = 1,
  kOutputLength = 2,
  kArrival = 3,
  kPrefixGroup = 4,
  kThink = 5,
  kBucket = 6,
  kPrefixTokens = 7,
  kTurnTokens = 8,
  kTraceTokens = 9,
};

// Uniform in [0, 1), 32 random bits; `part` makes several from one index.
double Uniform(uint64_t seed, Purpose purpose, uint64_t index, uint32_t part = 0);

// Standard normal (Box and Muller, 1958).
double Normal(uint64_t seed, Purpose purpose, uint64_t index);

// Exponential with mean 1.
double Exponential(uint64_t seed, Purpose purpose, uint64_t index);

}  // namespace baton::lab::bench
