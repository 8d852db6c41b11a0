#include "common/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/arena.h"
#include "common/model/checkpoint.h"
#include "common/model/rope.h"
#include "common/model/shard.h"
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

// Every sequence goes on by one token and wants its logits.
bool IsDecodeStep(const ForwardBatch& batch) {
  return batch.tokens.size() == batch.sequences.size() && batch.logit_rows.size() == batch.tokens.size();
}

}  // namespace

struct Decoder::Impl {
  ModelConfig config;
  kernels::Kernels& kernels;
  kernels::Collective* group;  // null: this is the whole model
  Shard shard;
  Weights weights;
  kernels::Values cos, sin;  // [context][head_dim / 2]
  std::string weights_digest;
  Arena arena;

  kernels::AttentionShape ShapeOf(int layer) const {
    return {.heads = config.heads / shard.ranks,
            .kv_heads = config.kv_heads / shard.ranks,
            .head_dim = config.head_dim,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))),
            .window = config.windows[static_cast<size_t>(layer)]};
  }

  void Sum(Matrix matrix) {
    if (group != nullptr) group->AllReduce(matrix);
  }

  // A step between Launch and Finish.
  struct Flight {
    Matrix scores;               // [logit rows or more, the shard's vocabulary]
    int64_t wanted = 0;          // logit rows
    std::vector<int32_t> drawn;  // those whose tokens were asked for
  };
  std::deque<Flight> flights;

  bool draws() const { return kernels.Draws(config.vocabulary); }
  void Launch(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
              absl::FunctionRef<void(int layer)> layer_done);
  void Finish(std::span<float> logits, std::span<TokenId> tokens);
  // Copies this rank's columns of `rows` of `from` to the host, if they are not there already.
  void Deliver(Matrix from, std::span<const int64_t> rows, Range columns, std::span<float> logits);
};

void Decoder::Impl::Launch(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
                           absl::FunctionRef<void(int layer)> layer_done) {
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  BATON_CHECK_EQ(static_cast<int64_t>(logits.size()), wanted * config.vocabulary);
  BATON_CHECK(!batch.tokens.empty() && (batch.taken.empty() || flights.size() == 1));
  // What is under way loses its logits now.
  BATON_CHECK(flights.empty() ||
              (flights.size() == 1 && std::ssize(flights.front().drawn) == flights.front().wanted));
  const kernels::AttentionShape heads = ShapeOf(0);
  BATON_CHECK(store.layout().layers == config.layers && store.layout().kv_heads == heads.kv_heads &&
              store.layout().head_dim == config.head_dim);
  const int64_t q_width = int64_t{heads.heads} * config.head_dim;
  const int64_t kv_width = int64_t{heads.kv_heads} * config.head_dim;
  const int64_t wide = shard.Of(config.intermediate).count;
  const Range vocabulary = shard.Of(config.vocabulary);
  const bool decode = IsDecodeStep(batch);
  const bool on_host = kernels.memory().host();

  // Rows to compute: what a backend adds to make shapes repeat takes part in everything and is then ignored.
  const int64_t rows = kernels.Begin({.tokens = batch.tokens,
                                      .taken = batch.taken,
                                      .sequences = batch.sequences,
                                      .logit_rows = batch.logit_rows,
                                      .group = heads.heads / heads.kv_heads,
                                      .decode = decode});
  const int64_t kept = decode ? rows : wanted;  // after the last layer's KV
  const tensor::DType precision = kernels.activation_dtype();
  arena.Reset();
  Matrix x = arena.Take(rows, config.hidden);  // the residual stream
  Matrix normed = arena.Take(rows, config.hidden, precision);
  Matrix qkv = arena.Take(rows, q_width + 2 * kv_width, precision);
  Matrix attended = arena.Take(rows, q_width, precision);
  Matrix delta = arena.Take(rows, config.hidden, precision);
  Matrix gate_up = arena.Take(rows, 2 * wide, precision);
  Matrix activated = arena.Take(rows, wide, precision);
  Matrix last_x = arena.Take(kept, config.hidden);
  Matrix last_qkv = arena.Take(kept, qkv.cols, precision);
  // All ranks' logits: on the host they write side by side, on GPUs each has the others' columns to itself.
  const Matrix whole = on_host ? Matrix{logits.data(), wanted, config.vocabulary, config.vocabulary}
                               : arena.Take(kept, config.vocabulary);
  const Matrix scores = whole.Columns(vocabulary.begin, vocabulary.count);

  const auto compute = [&] {
    std::span<const SequenceRows> sequences = batch.sequences;
    std::vector<SequenceRows> singles;
    kernels.Embed(*weights.embedding, batch.tokens, vocabulary.begin, x);
    Sum(x);
    kernels.RmsNorm(x, weights.layers.front().input_norm.view(), config.rms_eps, normed);
    for (int l = 0; l < config.layers; ++l) {
      const LayerWeights& layer = weights.layers[static_cast<size_t>(l)];
      const kernels::AttentionShape shape = ShapeOf(l);
      const bool last = l + 1 == config.layers;
      kernels.MatMul(normed, *layer.qkv, layer.qkv_bias.view(), qkv);
      kernels.RotateAndStore(qkv, shape,
                             {.q = layer.q_norm.view(), .k = layer.k_norm.view(), .eps = config.rms_eps},
                             {cos.view(), sin.view(), config.head_dim / 2}, sequences, l, store);
      if (!decode || on_host) {
        if (group != nullptr) group->Barrier();
        layer_done(l);
      }
      if (last) {
        // All KV is stored. Only rows whose logits are wanted have anything left to compute.
        if (wanted == 0) return;
        if (kept < rows) {
          singles = OneByOne(batch);
          sequences = singles;
          kernels.GatherRows(x, batch.logit_rows, last_x);
          kernels.GatherRows(qkv, batch.logit_rows, last_qkv);
          x = last_x;
          qkv = last_qkv;
          for (Matrix* matrix : {&normed, &attended, &delta, &gate_up, &activated}) matrix->rows = kept;
        }
      }
      kernels.Attention(qkv.Columns(0, q_width), shape, sequences, l, store, attended);
      kernels.MatMul(attended, *layer.output, layer.output_bias.view(), delta);
      Sum(delta);
      kernels.AddRmsNorm(x, delta, layer.post_norm.view(), config.rms_eps, normed);
      kernels.MatMul(normed, *layer.gate_up, layer.gate_up_bias.view(), gate_up);
      kernels.SwiGlu(gate_up, activated);
      kernels.MatMul(activated, *layer.down, layer.down_bias.view(), delta);
      Sum(delta);
      const kernels::Values& next =
          last ? weights.final_norm : weights.layers[static_cast<size_t>(l) + 1].input_norm;
      kernels.AddRmsNorm(x, delta, next.view(), config.rms_eps, normed);
    }
    if (group != nullptr && !on_host) kernels.Clear(whole);
    kernels.MatMul(normed, weights.head(), {}, scores);
  };
  const Matrix activations[] = {x, normed, qkv, attended, delta, gate_up, activated, scores};
  kernels.Run(activations, compute);
  if (decode && !on_host) {
    // The step may have been a replay, which calls nobody.
    if (group != nullptr) group->Barrier();
    for (int l = 0; l < config.layers; ++l) layer_done(l);
  }
  Flight& flight = flights.emplace_back(Flight{.scores = scores, .wanted = wanted, .drawn = {}});
  if (!batch.draws.empty() && draws()) {
    Matrix rows = whole;
    rows.rows = wanted;
    // Every rank gets all columns, and draws the same tokens.
    if (group != nullptr) on_host ? group->Barrier() : group->AllReduce(rows);
    kernels.Draw(rows, {batch.draws, batch.biases, batch.seen});
    for (const kernels::RowDraw& draw : batch.draws) flight.drawn.push_back(draw.row);
  }
  kernels.End();
}

void Decoder::Impl::Finish(std::span<float> logits, std::span<TokenId> tokens) {
  constexpr TokenId kNone(-1);
  const Flight flight = std::move(flights.front());
  flights.pop_front();
  std::ranges::fill(tokens, kNone);
  if (!flight.drawn.empty()) kernels.Drawn(tokens);
  // Nothing comes home that could be waited for, and all the same its blocks may now be given to others.
  if (flight.wanted == 0) kernels.memory().Fence();
  if (!flights.empty()) return;
  std::vector<int64_t> without;
  for (int64_t r = 0, d = 0; r < flight.wanted; ++r) {
    const bool asked = d < std::ssize(flight.drawn) && flight.drawn[static_cast<size_t>(d)] == r;
    if (!asked || tokens[static_cast<size_t>(d)] == kNone) without.push_back(r);
    d += asked ? 1 : 0;
  }
  Deliver(flight.scores, without, shard.Of(config.vocabulary), logits);
}

void Decoder::Impl::Deliver(Matrix from, std::span<const int64_t> rows, Range columns,
                            std::span<float> logits) {
  if (rows.empty() || from.row(0) == logits.data() + columns.begin) return;
  // All of a step's rows lie side by side more often than not, and are one copy then.
  const bool dense = from.stride == config.vocabulary && columns.count == config.vocabulary &&
                     rows.back() - rows.front() + 1 == std::ssize(rows);
  const int64_t values = dense ? std::ssize(rows) * config.vocabulary : columns.count;
  for (const int64_t r : dense ? rows.first(1) : rows) {
    const absl::Status copied =
        kernels.memory().Download(from.bytes(r), logits.data() + r * config.vocabulary + columns.begin,
                                  values * static_cast<int64_t>(sizeof(float)));
    // A device that failed stays failed; what it holds can't be trusted. The process has to start anew.
    BATON_CHECK(copied.ok()) << " " << copied.ToString();
  }
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::LoadShard(const std::string& folder,
                                                            kernels::Kernels& kernels,
                                                            kernels::Collective* group) {
  const Shard shard = group == nullptr ? Shard{} : Shard{.rank = group->rank(), .ranks = group->ranks()};
  BATON_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Load(folder));
  BATON_RETURN_IF_ERROR(CheckDivides(config, shard.ranks));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  BATON_ASSIGN_OR_RETURN(Weights weights, PackWeights(folder, checkpoint, config, shard, kernels));
  BATON_ASSIGN_OR_RETURN(RopeAngles angles, RopeAngles::Create(config));
  BATON_ASSIGN_OR_RETURN(kernels::Values cos, kernels::Values::Place(angles.TakeCos(), kernels.memory()));
  BATON_ASSIGN_OR_RETURN(kernels::Values sin, kernels::Values::Place(angles.TakeSin(), kernels.memory()));
  auto impl = std::unique_ptr<Impl>(
      new Impl{std::move(config), kernels, group, shard, std::move(weights), std::move(cos), std::move(sin),
               shard.first() ? checkpoint.Digest() : std::string(), Arena(kernels.memory())});
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
const std::string& Decoder::weights_digest() const { return impl_->weights_digest; }
int64_t Decoder::weight_bytes() const { return impl_->weights.bytes(); }

kv::KvLayout Decoder::LayoutFor(tensor::DType keys, tensor::DType values) const {
  return {.layers = impl_->config.layers,
          .kv_heads = impl_->config.kv_heads / impl_->shard.ranks,
          .head_dim = impl_->config.head_dim,
          .key_dtype = keys,
          .value_dtype = values};
}

void Decoder::Forward(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
                      absl::FunctionRef<void(int layer)> layer_done, std::span<TokenId> tokens) {
  BATON_CHECK_EQ(batch.draws.size(), tokens.size());
  if (batch.tokens.empty()) return;
  Launch(batch, store, logits, layer_done);
  Finish(logits, tokens);
}

void Decoder::Launch(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
                     absl::FunctionRef<void(int layer)> layer_done) {
  impl_->Launch(batch, store, logits, layer_done);
}

void Decoder::Finish(std::span<float> logits, std::span<TokenId> tokens) { impl_->Finish(logits, tokens); }

bool Decoder::draws() const { return impl_->draws(); }

bool Decoder::ReserveCounts(int32_t slots) {
  return draws() && impl_->kernels.ReserveCounts(slots, impl_->config.vocabulary);
}

}  // namespace baton::model
