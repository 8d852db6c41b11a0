// Bytes and operations of one step of an 8B model (the shape of Llama 3.1, in bf16), which gpu_bench divides
// by the time that it measures. Plain arithmetic, so that it can be checked where there is no GPU.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "protocol/kv_layout.h"

namespace baton::gpu {

inline constexpr int kLayers = 32, kHeads = 32, kKvHeads = 8, kHeadDim = 128;
inline constexpr int64_t kHidden = 4096, kIntermediate = 14336, kVocabulary = 128256;
// Columns of a projection's output.
inline constexpr int64_t kQuery = int64_t{kHeads} * kHeadDim;
inline constexpr int64_t kQkv = int64_t{kHeads + 2 * kKvHeads} * kHeadDim;

// Parameters that multiply every row, over all layers, and those that multiply the rows whose logits are
// wanted.
inline constexpr int64_t kLayersParameters =
    kLayers * (kQkv * kHidden + kHidden * kQuery + 3 * kIntermediate * kHidden);
inline constexpr int64_t kHeadParameters = kVocabulary * kHidden;

// Bytes that a decode step reads: the weights except for the embedding, of which it takes a row each, and the
// keys and values of `past` tokens of each sequence.
inline double DecodeBytes(int64_t sequences, int64_t past) {
  const int64_t kv = sequences * past * kLayers * 2 * kKvHeads * kHeadDim * 2;
  return static_cast<double>(2 * (kLayersParameters + kHeadParameters) + kv);
}

// Operations of one layer's causal attention over `rows` tokens: row i meets i + 1 keys, once for its scores
// and once for its values, by a multiplication and an addition each.
inline double AttentionFlops(int64_t rows) {
  return 4.0 * static_cast<double>(kQuery) * static_cast<double>(rows * (rows + 1) / 2);
}

// Operations of a prefill, with the logits of each sequence's last row.
inline double PrefillFlops(int64_t sequences, int64_t rows) {
  return 2.0 * static_cast<double>(sequences * rows) * static_cast<double>(kLayersParameters) +
         2.0 * static_cast<double>(sequences) * static_cast<double>(kHeadParameters) +
         static_cast<double>(sequences) * kLayers * AttentionFlops(rows);
}

// Bytes of one layer's keys and values, scales included, that decode attention reads. `past` in whole blocks.
inline double AttentionBytes(const kv::KvLayout& layout, int64_t sequences, int64_t past) {
  return static_cast<double>(sequences * past / kBlockTokens * layout.layer(0).bytes());
}

}  // namespace baton::gpu
