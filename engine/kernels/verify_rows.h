// A verify step of speculative decoding computes several rows of one sequence, all of whose logits are
// wanted: those of drafted tokens. A backend whose attention has one kernel for single rows and another for
// prompts computes such rows with the first, each as a row of its own length, so that they have the bits of
// single steps. Plain functions, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/kernels/kernels.h"

namespace baton::kernels {

// A sequence with more rows than this is a piece of a prompt, whatever logits are wanted of it.
inline constexpr int64_t kMaxVerifyRows = 32;

// True if logits of every row of the step are wanted (StepRows::decode), none of them in a piece of a prompt.
// logit_rows: ascending, none twice.
inline bool IsDecodeStep(int64_t rows, std::span<const SequenceRows> sequences,
                         std::span<const int64_t> logit_rows) {
  return static_cast<int64_t>(logit_rows.size()) == rows &&
         std::ranges::all_of(sequences, [](const SequenceRows& s) { return s.rows <= kMaxVerifyRows; });
}

}  // namespace baton::kernels
