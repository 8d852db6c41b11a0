// Products of bfloat16 (bf16_tiles.h) by the tiles of AMX. TDPBF16PS adds up the low halves of a block's
// words and the high halves, so the halves of a block are columns k and k + 16 for it: rows of x are kept
// that way, and blocks of a panel are turned that way as they are used. Only for processors that have it.
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/cpu/format.h"

#if defined(__x86_64__)

namespace baton::kernels::cpu {

// Bytes of a row of x of so many columns.
int64_t BF16AmxRowBytes(int64_t cols);
// Writes a row of x [cols], rounded.
void BF16AmxRound(const float* x, int64_t cols, std::byte* row);
// Reads such a row as floats: whole blocks of 32.
void BF16AmxRead(const std::byte* row, int64_t cols, float* out);
// Adds rows of job's product from row `first` on to C: sums [panels][rows][64].
void BF16AmxMultiply(const PanelProduct& job, int64_t first, int64_t rows, float* sums);

}  // namespace baton::kernels::cpu

#endif
