// AttentionBlock: the attention of one layer. It issues kernels and keeps nothing but where its weights are.
// The decoder's thread only.
//
//   q, k, v = h Wqkv + b        of each head: q and k normed (Qwen3; OLMoE: all heads as one) and turned by
//   their positions out     = softmax(q k^T scale) v Wo + b
//   (with sinks, one more score of each head joins the softmax; HunYuan norms behind the turn; Ministral 3
//   scales a query by its position)
//
// The two halves are apart because the last layer computes k and v of all rows, and the rest of few.
#pragma once

#include <span>

#include "engine/kernels/kernels.h"
#include "engine/kv/store/kv_store.h"
#include "engine/model/arena.h"
#include "engine/model/rank.h"
#include "engine/model/weights.h"
#include "text/config/config.h"

namespace baton::model {

class AttentionBlock {
 public:
  // Values between the two halves, and within the second. All layers share it.
  struct Scratch {
    kernels::Matrix qkv;       // [rows, (heads + 2 kv_heads) head_dim]
    kernels::Matrix attended;  // [rows, heads head_dim]
  };

  // All of these outlive the block.
  AttentionBlock(const ModelConfig& config, int layer, const AttentionWeights& weights,
                 const kernels::RopeTable& rope, const Rank& rank);

  const kernels::AttentionShape& shape() const { return shape_; }
  Scratch Take(Arena& arena, int64_t rows) const;

  // The first line of the formula, h being `normed` [rows, hidden]: k and v go into `store`, q stays in
  // scratch.qkv.
  void StoreKv(kernels::Matrix normed, std::span<const kernels::SequenceRows> sequences, kv::KvStore& store,
               const Scratch& scratch) const;
  // The second line, summed over the ranks, into `out` [rows, hidden]. `sequences` may be of other rows than
  // StoreKv's, if scratch.qkv has those.
  void Attend(std::span<const kernels::SequenceRows> sequences, const kv::KvStore& store,
              const Scratch& scratch, kernels::Matrix out) const;

 private:
  // Queries once more, after they were turned.
  void FinishQueries(std::span<const kernels::SequenceRows> sequences, kernels::Matrix queries) const;
  int64_t q_width() const { return int64_t{shape_.heads} * shape_.head_dim; }

  const int layer_;
  const float rms_eps_;
  const bool wide_norm_, late_norm_;
  const double query_beta_;
  const int64_t original_context_;
  const kernels::AttentionShape shape_;  // of this rank's heads
  const AttentionWeights& weights_;
  const kernels::RopeTable& rope_;
  const Rank& rank_;
};

}  // namespace baton::model
