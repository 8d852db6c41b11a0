#include "common/model/measure_columns.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/kv/store/kv_store.h"
#include "common/model/arena.h"
#include "common/model/attention_block.h"
#include "common/model/checkpoint.h"
#include "common/model/config/config.h"
#include "common/model/feed_forward.h"
#include "common/model/rank.h"
#include "common/model/rope.h"
#include "common/model/stored_quantization.h"
#include "common/model/weights.h"

namespace baton::model {
namespace {

using kernels::Matrix;

constexpr int64_t kMeasuredRows = 128;

// The rows on their way through the model.
class Pass {
 public:
  Pass(const ModelConfig& config, kernels::Kernels& kernels, ColumnExponents& to)
      : config_(config),
        rank_(kernels, nullptr),
        to_(to),
        arena_(kernels.memory()),
        rows_(std::min(kMeasuredRows, config.context)),
        stream_eps_(static_cast<float>(double{config.rms_eps} /
                                       (config.residual_multiplier * config.residual_multiplier))) {
    for (int64_t b = 0; b < BlocksFor(rows_); ++b) blocks_.emplace_back(static_cast<int32_t>(b));
    sequence_ = {.rows = rows_, .blocks = blocks_};
  }

  absl::Status Begin(const kernels::PackedMatrix& embeddings) {
    const kv::KvLayout layout = {.layers = config_.layers,
                                 .kv_heads = config_.kv_heads,
                                 .head_dim = kv::StoredHeadDim(config_.head_dim),
                                 .key_dtype = tensor::DType::kF32,
                                 .value_dtype = tensor::DType::kF32};
    BATON_RETURN_IF_ERROR(rank_.kernels.CheckLayout(layout, config_.head_dim));
    BATON_ASSIGN_OR_RETURN(auto store,
                           kv::KvStore::Create(layout, std::ssize(blocks_), rank_.kernels.memory()));
    store_ = std::make_unique<kv::KvStore>(std::move(store));
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < rows_; ++i) ids.emplace_back(static_cast<int32_t>(i));
    stream_.resize(static_cast<size_t>(rows_ * config_.hidden));
    x_ = {stream_.data(), rows_, config_.hidden, config_.hidden};
    rank_.kernels.Embed(embeddings, ids, 0, x_);
    const double scale = config_.embedding_multiplier / config_.residual_multiplier;
    if (scale != 1) rank_.kernels.Scale(x_, static_cast<float>(scale));
    return absl::OkStatus();
  }
  void Layer(int index, const StoredLayer& layer, const kernels::RopeTable& rope) {
    const AttentionWeights& attention_weights = layer.weights.attention;
    const auto& dense = std::get<FeedForwardWeights>(layer.weights.feed_forward);
    const AttentionBlock attention(config_, index, attention_weights, rope, rank_);
    const FeedForward feed_forward(dense, rank_);
    arena_.Reset();
    const Matrix normed = arena_.Take(rows_, config_.hidden), delta = arena_.Take(rows_, config_.hidden);
    const AttentionBlock::Scratch of_attention = attention.Take(arena_, rows_);
    const FeedForward::Scratch of_feed_forward = feed_forward.Take(arena_, rows_);

    const Matrix in = Normed(attention_weights.norm, normed);
    Note(in, layer.qkv);
    attention.StoreKv(in, {&sequence_, 1}, *store_, of_attention);
    attention.Attend({&sequence_, 1}, *store_, of_attention, delta);
    Note(of_attention.attended, layer.output);
    Add(attention_weights.norm, delta);
    const Matrix second = Normed(dense.norm, normed);
    Note(second, layer.gate_up);
    feed_forward.Forward(second, of_feed_forward, delta);
    Note(of_feed_forward.activated, layer.down);
    Add(dense.norm, delta);
  }
  void End(const kernels::Values& final_norm, const std::string& head) {
    arena_.Reset();
    const Matrix normed = arena_.Take(rows_, config_.hidden);
    rank_.kernels.RmsNorm(x_, final_norm.view(), stream_eps_, normed);
    Note(normed, {head});
  }

 private:
  // The input of a block: normed, but for models with norms behind their blocks.
  Matrix Normed(const kernels::Values& norm, Matrix normed) {
    if (config_.post_norms) return x_;
    rank_.kernels.RmsNorm(x_, norm.view(), stream_eps_, normed);
    return normed;
  }
  void Add(const kernels::Values& norm, Matrix delta) {
    if (config_.post_norms) rank_.kernels.RmsNorm(delta, norm.view(), config_.rms_eps, delta);
    rank_.kernels.Add(x_, delta);
  }
  void Note(Matrix x, const std::vector<std::string>& tensors) {
    std::vector<float> squares(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* const row = x.row(r);
      for (size_t k = 0; k < squares.size(); ++k) squares[k] += row[k] * row[k];
    }
    std::vector<int8_t> exponents;
    for (const float sum : squares) exponents.push_back(ExponentOf(sum / static_cast<float>(x.rows)));
    to_.Set(tensors, std::move(exponents));
  }

  const ModelConfig& config_;
  const Rank rank_;
  ColumnExponents& to_;
  Arena arena_;
  const int64_t rows_;
  const float stream_eps_;
  std::vector<BlockId> blocks_;
  kernels::SequenceRows sequence_;
  std::unique_ptr<kv::KvStore> store_;  // null before Begin
  std::vector<float> stream_;
  Matrix x_ = {};  // the residual stream, as the decoder keeps it
};

// Knuth's multiplicative hash.
std::vector<int64_t> DrawnIds(const ModelConfig& config) {
  std::vector<int64_t> ids;
  for (int64_t i = 1; i <= std::min(kMeasuredRows, config.context); ++i) {
    const auto drawn = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u);
    ids.push_back(static_cast<int64_t>(uint64_t{drawn} * static_cast<uint64_t>(config.vocabulary) >> 32));
  }
  return ids;
}

// Matrices that are integers in the folder are kept, most of them.
bool HoldsIntegers(const QuantizationConfig& stored) {
  using Method = QuantizationConfig::Method;
  return stored.method == Method::kCompressedTensors || stored.method == Method::kGptq ||
         stored.method == Method::kAwq || stored.method == Method::kBaton;
}

}  // namespace

absl::StatusOr<ColumnExponents> MeasureColumns(const std::string& folder, kernels::Kernels& kernels) {
  ColumnExponents measured;
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(folder));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, LoadQuantization(folder, checkpoint));
  if (config.experts.experts > 0 || HoldsIntegers(stored)) return measured;
  BATON_ASSIGN_OR_RETURN(const RopeAngles rope, RopeAngles::Create(config));
  const std::vector<bool> others = OtherLayers(config);
  std::optional<RopeAngles> other;
  if (!others.empty()) {
    BATON_ASSIGN_OR_RETURN(other, RopeAngles::Other(config));
  }
  Pass pass(config, kernels, measured);
  StoredLayers layers(folder, checkpoint, config, stored, kernels);
  {
    BATON_ASSIGN_OR_RETURN(const auto embeddings, layers.Embeddings(DrawnIds(config)));
    BATON_RETURN_IF_ERROR(pass.Begin(*embeddings));
  }
  for (int l = 0; l < config.layers; ++l) {
    BATON_ASSIGN_OR_RETURN(const StoredLayer layer, layers.Layer(l));
    pass.Layer(l, layer, !others.empty() && others[static_cast<size_t>(l)] ? other->table() : rope.table());
  }
  BATON_ASSIGN_OR_RETURN(const kernels::Values norm, layers.FinalNorm());
  pass.End(norm, layers.head());
  return measured;
}

}  // namespace baton::model
