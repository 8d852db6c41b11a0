#include "common/model/decoder.h"

#include <cmath>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/arena.h"
#include "common/model/checkpoint.h"
#include "common/model/rope.h"
#include "common/model/weights.h"

namespace baton::model {

using kernels::Matrix;
using kernels::SequenceRows;

namespace {

// The rows whose logits are wanted, as batches of one row each: what remains to compute once the last layer's
// KV is stored. [logit_rows]
std::vector<SequenceRows> OneByOne(const ForwardBatch& batch) {
  std::vector<SequenceRows> singles;
  singles.reserve(batch.logit_rows.size());
  auto sequence = batch.sequences.begin();
  for (int64_t row : batch.logit_rows) {
    while (row >= sequence->first_row + sequence->rows) ++sequence;
    singles.push_back({.first_row = static_cast<int64_t>(singles.size()),
                       .rows = 1,
                       .first_position = sequence->first_position + row - sequence->first_row,
                       .blocks = sequence->blocks});
  }
  return singles;
}

// Copies rows of `from` to the top of `to`. Shapes but for the rows are equal.
Matrix GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) {
  int64_t out = 0;
  for (int64_t row : rows) std::copy_n(from.row(row), from.cols, to.row(out++));
  return to;
}

}  // namespace

struct Decoder::Impl {
  ModelConfig config;
  kernels::Kernels& kernels;
  Weights weights;
  RopeAngles rope;
  std::string weights_digest;
  Arena arena;

  kernels::AttentionShape ShapeOf(int layer) const {
    return {.heads = config.heads,
            .kv_heads = config.kv_heads,
            .head_dim = config.head_dim,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))),
            .window = config.windows[static_cast<size_t>(layer)]};
  }

  void Forward(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
               absl::FunctionRef<void(int layer)> layer_done);
};

void Decoder::Impl::Forward(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
                            absl::FunctionRef<void(int layer)> layer_done) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  BATON_CHECK_EQ(static_cast<int64_t>(logits.size()), wanted * config.vocabulary);
  if (rows == 0) return;
  BATON_CHECK(store.layout().layers == config.layers && store.layout().kv_heads == config.kv_heads &&
              store.layout().head_dim == config.head_dim);
  const int64_t q_width = int64_t{config.heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;

  arena.Reset();
  Matrix x = arena.Take(rows, config.hidden);  // the residual stream
  Matrix normed = arena.Take(rows, config.hidden);
  Matrix qkv = arena.Take(rows, q_width + 2 * kv_width);
  Matrix attended = arena.Take(rows, q_width);
  Matrix delta = arena.Take(rows, config.hidden);
  Matrix gate_up = arena.Take(rows, 2 * config.intermediate);
  Matrix activated = arena.Take(rows, config.intermediate);
  Matrix last_x = arena.Take(wanted, config.hidden);
  Matrix last_qkv = arena.Take(wanted, qkv.cols);

  std::span<const SequenceRows> sequences = batch.sequences;
  std::vector<SequenceRows> singles;
  kernels.Embed(*weights.embedding, batch.tokens, x);
  kernels.RmsNorm(x, weights.layers.front().input_norm, config.rms_eps, normed);
  for (int l = 0; l < config.layers; ++l) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(l)];
    const kernels::AttentionShape shape = ShapeOf(l);
    const bool last = l + 1 == config.layers;
    kernels.MatMul(normed, *layer.qkv, layer.qkv_bias, qkv);
    kernels.RotateAndStore(qkv, shape, {.q = layer.q_norm, .k = layer.k_norm, .eps = config.rms_eps},
                           rope.table(), sequences, l, store);
    layer_done(l);
    if (last) {
      // All KV is stored. Only rows whose logits are wanted have anything left to compute.
      if (wanted == 0) return;
      if (wanted < rows) {
        singles = OneByOne(batch);
        sequences = singles;
        x = GatherRows(x, batch.logit_rows, last_x);
        qkv = GatherRows(qkv, batch.logit_rows, last_qkv);
        for (Matrix* matrix : {&normed, &attended, &delta, &gate_up, &activated}) matrix->rows = wanted;
      }
    }
    kernels.Attention(qkv.Columns(0, q_width), shape, sequences, l, store, attended);
    kernels.MatMul(attended, *layer.output, layer.output_bias, delta);
    kernels.AddRmsNorm(x, delta, layer.post_norm, config.rms_eps, normed);
    kernels.MatMul(normed, *layer.gate_up, layer.gate_up_bias, gate_up);
    kernels.SwiGlu(gate_up, activated);
    kernels.MatMul(activated, *layer.down, layer.down_bias, delta);
    const std::vector<float>& next =
        last ? weights.final_norm : weights.layers[static_cast<size_t>(l) + 1].input_norm;
    kernels.AddRmsNorm(x, delta, next, config.rms_eps, normed);
  }
  kernels.MatMul(normed, weights.head(), {}, {logits.data(), wanted, config.vocabulary, config.vocabulary});
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Load(const std::string& folder, kernels::Kernels& kernels) {
  BATON_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Load(folder));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  BATON_ASSIGN_OR_RETURN(Weights weights, PackWeights(folder, checkpoint, config, kernels));
  BATON_ASSIGN_OR_RETURN(RopeAngles rope, RopeAngles::Create(config));
  auto impl = std::unique_ptr<Impl>(new Impl{std::move(config), kernels, std::move(weights), std::move(rope),
                                             checkpoint.Digest(), Arena()});
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
const std::string& Decoder::weights_digest() const { return impl_->weights_digest; }
int64_t Decoder::weight_bytes() const { return impl_->weights.bytes(); }

kv::KvLayout Decoder::LayoutFor(tensor::DType keys, tensor::DType values) const {
  return {.layers = impl_->config.layers,
          .kv_heads = impl_->config.kv_heads,
          .head_dim = impl_->config.head_dim,
          .key_dtype = keys,
          .value_dtype = values};
}

void Decoder::Forward(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
                      absl::FunctionRef<void(int layer)> layer_done) {
  impl_->Forward(batch, store, logits, layer_done);
}

}  // namespace baton::model
