#include "common/model/column_exponents.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/model/arena.h"
#include "common/model/attention_block.h"
#include "common/model/decoder.h"
#include "common/model/feed_forward.h"
#include "common/model/rank.h"
#include "common/model/rope.h"
#include "common/model/weights.h"

namespace baton::model {

using kernels::Matrix;

int8_t ExponentOf(float mean_square) {
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(mean_square) >> 23 & 0xFF) - 127;
  return static_cast<int8_t>((std::clamp(exponent, -60, 60) + 4) >> 3);
}

// The rows on their way through the model.
class ColumnExponents::Pass {
 public:
  Pass(const ModelConfig& config, kernels::Kernels& kernels, ColumnExponents& to)
      : config_(config),
        rank_(kernels, nullptr),
        to_(to),
        arena_(kernels.memory()),
        rows_(std::min<int64_t>(kRows, config.context)),
        stream_eps_(static_cast<float>(double{config.rms_eps} /
                                       (config.residual_multiplier * config.residual_multiplier))) {
    for (int64_t b = 0; b < BlocksFor(rows_); ++b) blocks_.emplace_back(static_cast<int32_t>(b));
    sequence_ = {.rows = rows_, .blocks = blocks_};
  }

  absl::Status Begin(const kernels::PackedMatrix& embeddings) {
    const kv::KvLayout layout = KvLayoutOf(config_, 1, tensor::DType::kF32, tensor::DType::kF32);
    BATON_RETURN_IF_ERROR(rank_.kernels.CheckLayout(layout, config_.head_dim));
    BATON_ASSIGN_OR_RETURN(auto store,
                           kv::KvStore::Create(layout, std::ssize(blocks_), rank_.kernels.memory()));
    store_ = std::make_unique<kv::KvStore>(std::move(store));
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < rows_; ++i) ids.emplace_back(static_cast<int32_t>(i));
    x_ = OwnedRows(config_.hidden);
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
  Matrix OwnedRows(int64_t cols) {
    stream_.resize(static_cast<size_t>(rows_ * cols));
    return {stream_.data(), rows_, cols, cols};
  }
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
    auto exponents = std::make_shared<std::vector<int8_t>>();
    for (const float sum : squares) exponents->push_back(ExponentOf(sum / static_cast<float>(x.rows)));
    for (const std::string& tensor : tensors) to_.of_[tensor] = exponents;
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

absl::StatusOr<ColumnExponents> ColumnExponents::Measure(
    const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
    const QuantizationConfig& stored, const kernels::RopeTable& rope, const kernels::RopeTable& other,
    kernels::Kernels& kernels) {
  ColumnExponents measured;
  Pass pass(config, kernels, measured);
  StoredLayers layers(folder, checkpoint, config, stored, kernels);
  std::vector<int64_t> ids;
  for (int64_t i = 1; i <= std::min<int64_t>(kRows, config.context); ++i) {
    const auto drawn = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u);
    ids.push_back(static_cast<int64_t>(uint64_t{drawn} * static_cast<uint64_t>(config.vocabulary) >> 32));
  }
  {
    BATON_ASSIGN_OR_RETURN(const auto embeddings, layers.Embeddings(ids));
    BATON_RETURN_IF_ERROR(pass.Begin(*embeddings));
  }
  const std::vector<bool> others = OtherLayers(config);
  for (int l = 0; l < config.layers; ++l) {
    BATON_ASSIGN_OR_RETURN(const StoredLayer layer, layers.Layer(l));
    pass.Layer(l, layer, !others.empty() && others[static_cast<size_t>(l)] ? other : rope);
  }
  BATON_ASSIGN_OR_RETURN(const kernels::Values norm, layers.FinalNorm());
  pass.End(norm, layers.head());
  return measured;
}

const int8_t* ColumnExponents::Of(std::string_view tensor) const {
  const auto found = of_.find(tensor);
  return found == of_.end() ? nullptr : found->second->data();
}

std::string ColumnExponents::Digest() const {
  if (of_.empty()) return {};
  Sha256 sha;
  for (const auto& [tensor, exponents] : of_) {
    sha.Update(tensor);
    sha.Update({reinterpret_cast<const char*>(exponents->data()), exponents->size()});
  }
  const Sha256Digest digest = sha.Finish();
  return {digest.begin(), digest.end()};
}

}  // namespace baton::model
