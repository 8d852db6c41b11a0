#include "engine/model/attention_block.h"

#include <cmath>
#include <utility>

namespace baton::model {

using kernels::Matrix;
using kernels::SequenceRows;

AttentionBlock::AttentionBlock(const ModelConfig& config, int layer, const AttentionWeights& weights,
                               const kernels::RopeTable& rope, const Rank& rank)
    : layer_(layer),
      rms_eps_(config.rms_eps),
      wide_norm_(config.wide_qk_norm),
      late_norm_(config.late_qk_norm),
      query_beta_(config.query_beta),
      original_context_(config.rope_scaling.original_context),
      shape_({.heads = config.heads / rank.shard.ranks,
              .kv_heads = config.kv_heads / rank.shard.ranks,
              .head_dim = config.head_dim,
              .scale = static_cast<float>(config.attention_multiplier != 0
                                              ? config.attention_multiplier
                                              : 1 / std::sqrt(static_cast<double>(config.head_dim))),
              .window = config.windows[static_cast<size_t>(layer)],
              .sinks = weights.sinks.view()}),
      weights_(weights),
      rope_(rope),
      rank_(rank) {}

AttentionBlock::Scratch AttentionBlock::Take(Arena& arena, int64_t rows) const {
  const tensor::DType precision = rank_.kernels.activation_dtype();
  const int64_t kv_width = int64_t{shape_.kv_heads} * shape_.head_dim;
  return {.qkv = arena.Take(rows, q_width() + 2 * kv_width, precision),
          .attended = arena.Take(rows, q_width(), precision)};
}

void AttentionBlock::StoreKv(Matrix normed, std::span<const SequenceRows> sequences, kv::KvStore& store,
                             const Scratch& scratch) const {
  rank_.kernels.MatMul(normed, *weights_.qkv, weights_.qkv_bias.view(), scratch.qkv);
  kernels::Kernels::QkNorm norm = {.q = weights_.q_norm.view(), .k = weights_.k_norm.view(), .eps = rms_eps_};
  if (wide_norm_) {
    // Over all heads together.
    for (const auto& [first, weight] : {std::pair{int64_t{0}, norm.q}, std::pair{q_width(), norm.k}}) {
      const Matrix heads = scratch.qkv.Columns(first, std::ssize(weight));
      rank_.kernels.RmsNorm(heads, weight, rms_eps_, heads);
    }
    norm = {};
  }
  // A norm without weights is the same before the turn and after it.
  if (late_norm_) norm.q = {};
  rank_.kernels.RotateAndStore(scratch.qkv, shape_, norm, rope_, sequences, layer_, store);
  FinishQueries(sequences, scratch.qkv.Columns(0, q_width()));
}

void AttentionBlock::FinishQueries(std::span<const SequenceRows> sequences, Matrix queries) const {
  if (late_norm_) {
    for (int64_t r = 0; r < queries.rows; ++r) {
      const Matrix heads = {queries.Rows(r, 1).data, shape_.heads, shape_.head_dim, shape_.head_dim,
                            queries.dtype};
      rank_.kernels.RmsNorm(heads, weights_.q_norm.view(), rms_eps_, heads);
    }
  }
  if (query_beta_ == 0) return;
  for (const SequenceRows& sequence : sequences) {
    for (int64_t r = 0; r < sequence.rows; ++r) {
      const int64_t times = (sequence.first_position + r) / original_context_;
      if (times == 0) continue;
      rank_.kernels.Scale(queries.Rows(sequence.first_row + r, 1),
                          static_cast<float>(1 + query_beta_ * std::log1p(static_cast<double>(times))));
    }
  }
}

void AttentionBlock::Attend(std::span<const SequenceRows> sequences, const kv::KvStore& store,
                            const Scratch& scratch, Matrix out) const {
  rank_.kernels.Attention(scratch.qkv.Columns(0, q_width()), shape_, sequences, layer_, store,
                          scratch.attended);
  rank_.MatMulSum(scratch.attended, *weights_.output, weights_.output_bias.view(), out);
}

}  // namespace baton::model
