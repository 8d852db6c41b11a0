// Randomness as a pure function: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC'11) keyed by a seed and counted by a position. The same (seed, position) gives the same draw on any
// machine, so a generation that moves to another worker continues with the tokens that it would have had.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

// The ten-round Philox4x32 bijection of the paper.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), 53 random bits.
double UniformAt(uint64_t seed, uint64_t position);

// 64 bits from the operating system; for incarnations, and for seeds that no client chose.
uint64_t RandomU64();

}  // namespace baton
