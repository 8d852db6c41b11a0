#include "engine/model/layer_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "common/base/status.h"
#include "engine/model/attention_block.h"
#include "engine/model/feed_forward.h"

namespace baton::model {

using kernels::Matrix;

LayerPass::LayerPass(const ModelConfig& config, kernels::Kernels& kernels, std::vector<int64_t> rows)
    : config_(config),
      rank_(kernels, nullptr),
      arena_(kernels.memory()),
      rows_(std::move(rows)),
      stream_eps_(static_cast<float>(double{config.rms_eps} /
                                     (config.residual_multiplier * config.residual_multiplier))) {
  for (int64_t b = 0; b < BlocksFor(*std::ranges::max_element(rows_)); ++b)
    blocks_.emplace_back(static_cast<int32_t>(b));
}

absl::StatusOr<std::unique_ptr<LayerPass>> LayerPass::Create(const ModelConfig& config,
                                                             kernels::Kernels& kernels,
                                                             std::vector<int64_t> rows) {
  std::unique_ptr<LayerPass> made(new LayerPass(config, kernels, std::move(rows)));
  const kv::KvLayout layout = {.layers = config.layers,
                               .kv_heads = config.kv_heads,
                               .head_dim = kv::StoredHeadDim(config.head_dim),
                               .key_dtype = tensor::DType::kF32,
                               .value_dtype = tensor::DType::kF32};
  BATON_RETURN_IF_ERROR(kernels.CheckLayout(layout, config.head_dim));
  BATON_ASSIGN_OR_RETURN(auto store,
                         kv::KvStore::Create(layout, std::ssize(made->blocks_), kernels.memory()));
  made->store_ = std::make_unique<kv::KvStore>(std::move(store));
  return made;
}

void LayerPass::Begin(const kernels::PackedMatrix& embeddings) {
  const int64_t all = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < all; ++i) ids.emplace_back(static_cast<int32_t>(i));
  stream_.resize(static_cast<size_t>(all * config_.hidden));
  const Matrix x = {stream_.data(), all, config_.hidden, config_.hidden};
  rank_.kernels.Embed(embeddings, ids, 0, x);
  const double scale = config_.embedding_multiplier / config_.residual_multiplier;
  if (scale != 1) rank_.kernels.Scale(x, static_cast<float>(scale));
}

void LayerPass::Layer(int index, const StoredLayer& layer, const kernels::RopeTable& rope, See see) {
  const AttentionWeights& attention_weights = layer.weights.attention;
  const auto& dense = std::get<FeedForwardWeights>(layer.weights.feed_forward);
  const AttentionBlock attention(config_, index, attention_weights, rope, rank_);
  const FeedForward feed_forward(dense, rank_);
  for (size_t t = 0; t < rows_.size(); ++t) {
    const Matrix x = Rows(t);
    const kernels::SequenceRows sequence = {.rows = x.rows, .blocks = blocks_};
    arena_.Reset();
    const Matrix normed = arena_.Take(x.rows, config_.hidden), delta = arena_.Take(x.rows, config_.hidden);
    const AttentionBlock::Scratch of_attention = attention.Take(arena_, x.rows);
    const FeedForward::Scratch of_feed_forward = feed_forward.Take(arena_, x.rows);

    const Matrix in = Normed(attention_weights.norm, x, normed);
    see(in, layer.qkv);
    attention.StoreKv(in, {&sequence, 1}, *store_, of_attention);
    attention.Attend({&sequence, 1}, *store_, of_attention, delta);
    see(of_attention.attended, layer.output);
    Add(attention_weights.norm, delta, x);
    const Matrix second = Normed(dense.norm, x, normed);
    see(second, layer.gate_up);
    feed_forward.Forward(second, of_feed_forward, delta);
    see(of_feed_forward.activated, layer.down);
    Add(dense.norm, delta, x);
  }
}

void LayerPass::End(const kernels::Values& final_norm, const std::string& head, See see) {
  for (size_t t = 0; t < rows_.size(); ++t) {
    const Matrix x = Rows(t);
    arena_.Reset();
    const Matrix normed = arena_.Take(x.rows, config_.hidden);
    rank_.kernels.RmsNorm(x, final_norm.view(), stream_eps_, normed);
    see(normed, {head});
  }
}

Matrix LayerPass::Rows(size_t t) {
  const int64_t before = std::accumulate(rows_.begin(), rows_.begin() + static_cast<int64_t>(t), int64_t{0});
  return {stream_.data() + before * config_.hidden, rows_[t], config_.hidden, config_.hidden};
}

// The input of a block: normed, but for models with norms behind their blocks.
Matrix LayerPass::Normed(const kernels::Values& norm, Matrix x, Matrix normed) {
  if (config_.post_norms) return x;
  rank_.kernels.RmsNorm(x, norm.view(), stream_eps_, normed);
  return normed;
}

void LayerPass::Add(const kernels::Values& norm, Matrix delta, Matrix x) {
  if (config_.post_norms) rank_.kernels.RmsNorm(delta, norm.view(), config_.rms_eps, delta);
  rank_.kernels.Add(x, delta);
}

}  // namespace baton::model
