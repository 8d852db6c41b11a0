#include "engine/model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "engine/kernels/verify_rows.h"
#include "engine/model/arena.h"
#include "engine/model/attention_block.h"
#include "engine/model/checkpoint.h"
#include "engine/model/expert_block.h"
#include "engine/model/expert_packing.h"
#include "engine/model/expert_store.h"
#include "engine/model/feed_forward.h"
#include "engine/model/head.h"
#include "engine/model/rank.h"
#include "engine/model/rope.h"
#include "engine/model/stored_quantization.h"
#include "engine/model/weights.h"

namespace baton::model {

using kernels::Matrix;
using kernels::SequenceRows;

namespace {

// Threads that read experts together: they wait for a disk, which is quickest with several reads to do.
constexpr int kExpertReaders = 8;

// The rows whose logits are wanted, as batches of one row each: what remains to compute once the last layer's
// KV is stored. [logit_rows]
std::vector<SequenceRows> OneByOne(const kernels::StepRows& step) {
  std::vector<SequenceRows> singles;
  singles.reserve(step.logit_rows.size());
  auto sequence = step.sequences.begin();
  for (int64_t row : step.logit_rows) {
    while (row >= sequence->first_row + sequence->rows) ++sequence;
    singles.push_back({.first_row = static_cast<int64_t>(singles.size()),
                       .rows = 1,
                       .first_position = sequence->first_position + row - sequence->first_row,
                       .blocks = sequence->blocks});
  }
  return singles;
}

// One layer: its two blocks.
struct Layer {
  AttentionBlock attention;
  std::variant<FeedForward, ExpertBlock> feed_forward;

  template <typename Block, typename... Arguments>
  Layer(AttentionBlock first, std::in_place_type_t<Block> second, Arguments&&... arguments)
      : attention(std::move(first)), feed_forward(second, std::forward<Arguments>(arguments)...) {}
};

// Rope angles where the kernels look them up.
struct Angles {
  kernels::Values cos, sin;  // [context][rotary_dim / 2]

  static absl::StatusOr<Angles> Place(RopeAngles angles, device::Memory& memory) {
    Angles placed;
    BATON_ASSIGN_OR_RETURN(placed.cos, kernels::Values::Place(angles.TakeCos(), memory));
    BATON_ASSIGN_OR_RETURN(placed.sin, kernels::Values::Place(angles.TakeSin(), memory));
    return placed;
  }
  kernels::RopeTable table(const ModelConfig& config) const {
    return {cos.view(), sin.view(), config.rotary_dim / 2};
  }
};

}  // namespace

struct Decoder::Impl {
  ModelConfig config;
  Rank rank;
  Weights weights;
  std::unique_ptr<ExpertStore> experts;  // null: all are in memory
  Angles angles, other_angles;
  std::string weights_digest, contradiction;
  Arena arena;
  int64_t arena_growths = 0;       // when steps were recorded
  std::vector<bool> other_layers;  // OtherLayers
  kernels::RopeTable rope, other;
  std::vector<Layer> layers;
  Head head;
  // The residual stream is kept divided by residual_multiplier: blocks then add to it as they are, and its
  // norms, which no factor changes, take their epsilon divided by the square.
  const float embedding_scale;
  const float stream_eps;
  ExpertObserver* observer = nullptr;

  Impl(ModelConfig model, const Rank& part, Weights packed, std::unique_ptr<ExpertStore> outside,
       Angles usual, Angles others, std::string digest)
      : config(std::move(model)),
        rank(part),
        weights(std::move(packed)),
        experts(std::move(outside)),
        angles(std::move(usual)),
        other_angles(std::move(others)),
        weights_digest(std::move(digest)),
        arena(rank.kernels.memory()),
        other_layers(OtherLayers(config)),
        rope(angles.table(config)),
        other(other_angles.table(config)),
        head(weights.head(), config.vocabulary, rank),
        embedding_scale(static_cast<float>(config.embedding_multiplier / config.residual_multiplier)),
        stream_eps(static_cast<float>(double{config.rms_eps} /
                                      (config.residual_multiplier * config.residual_multiplier))) {
    layers.reserve(weights.layers.size());
    for (const LayerWeights& layer : weights.layers) {
      const auto index = static_cast<int>(layers.size());
      const bool has_other = !other_layers.empty() && other_layers[static_cast<size_t>(index)];
      const AttentionBlock attention(config, index, layer.attention, has_other ? other : rope, rank);
      if (const auto* dense = std::get_if<FeedForwardWeights>(&layer.feed_forward)) {
        layers.emplace_back(attention, std::in_place_type<FeedForward>, *dense, rank);
      } else {
        layers.emplace_back(attention, std::in_place_type<ExpertBlock>, config, index,
                            std::get<ExpertWeights>(layer.feed_forward), rank, experts.get());
      }
    }
  }
  Impl(const Impl&) = delete;  // blocks point into it
  Impl& operator=(const Impl&) = delete;

  // The matrices of a step.
  struct Activations {
    Matrix x;       // [rows, hidden] the residual stream
    Matrix normed;  // [rows, hidden] what a block reads
    Matrix delta;   // [rows, hidden] what a block adds to x
    AttentionBlock::Scratch attention;
    FeedForward::Scratch feed_forward;  // of the dense layers, if there are any
    ExpertBlock::Scratch experts;       // of the mixtures
    Matrix last_x, last_qkv;            // of the rows that go on after the last layer's KV
    Matrix logits;                      // of these rows, all columns
  };
  // A step between Launch and Finish.
  struct InFlightStep {
    Matrix logits;               // [logit rows or more, vocabulary]
    int64_t wanted = 0;          // logit rows
    std::vector<int32_t> drawn;  // those whose tokens were asked for
  };
  std::deque<InFlightStep> in_flight;

  // Null: tokens are drawn on the host.
  kernels::DeviceSampler* sampler() const {
    kernels::DeviceSampler* const has = rank.kernels.sampler();
    return has != nullptr && has->CanSample(config.vocabulary) ? has : nullptr;
  }
  void Launch(kernels::StepRows step, const kernels::StepDraws& draws, kv::KvStore& store,
              std::span<float> logits, absl::FunctionRef<void(int layer)> layer_done);
  void Finish(std::span<float> logits, std::span<TokenId> tokens);

 private:
  void CheckLaunch(const kernels::StepRows& step, const kv::KvStore& store, std::span<float> logits) const;
  // Takes memory for `rows` rows, of which `kept` go on after the last layer's KV.
  Activations Take(int64_t rows, int64_t kept, int64_t wanted, std::span<float> logits);
  // Drops all rows but those whose logits are wanted.
  void KeepLogitRows(const kernels::StepRows& step, Activations& at) const;
  // x += norm(delta) (post_norms).
  void AddNormed(const kernels::Values& norm, const Activations& at) {
    rank.kernels.RmsNorm(at.delta, norm.view(), config.rms_eps, at.delta);
    rank.kernels.Add(at.x, at.delta);
  }
  // The norm that follows layer l.
  const kernels::Values& NormAfter(size_t l) const {
    return l + 1 < weights.layers.size() ? weights.layers[l + 1].attention.norm : weights.final_norm;
  }
};

void Decoder::Impl::CheckLaunch(const kernels::StepRows& step, const kv::KvStore& store,
                                std::span<float> logits) const {
  BATON_CHECK_EQ(static_cast<int64_t>(logits.size()), std::ssize(step.logit_rows) * config.vocabulary);
  BATON_CHECK(!step.tokens.empty() && (step.taken.empty() || in_flight.size() == 1));
  // A step that is under way loses its logits now.
  BATON_CHECK(in_flight.empty() ||
              (in_flight.size() == 1 && std::ssize(in_flight.front().drawn) == in_flight.front().wanted));
  BATON_CHECK(store.layout().layers == config.layers &&
              store.layout().kv_heads == layers.front().attention.shape().kv_heads &&
              store.layout().head_dim == kv::StoredHeadDim(config.head_dim));
}

Decoder::Impl::Activations Decoder::Impl::Take(int64_t rows, int64_t kept, int64_t wanted,
                                               std::span<float> logits) {
  const tensor::DType precision = rank.kernels.activation_dtype();
  arena.Reset();
  Activations at;
  at.x = arena.Take(rows, config.hidden);
  at.normed = arena.Take(rows, config.hidden, precision);
  at.delta = arena.Take(rows, config.hidden, precision);
  at.attention = layers.front().attention.Take(arena, rows);
  bool dense = false, mixtures = false;  // have their memory
  for (const Layer& layer : layers) {
    if (const auto* block = std::get_if<FeedForward>(&layer.feed_forward); block != nullptr && !dense) {
      at.feed_forward = block->Take(arena, rows);
      dense = true;
    } else if (const auto* mixture = std::get_if<ExpertBlock>(&layer.feed_forward);
               mixture != nullptr && !mixtures) {
      at.experts = mixture->Take(arena, rows);
      mixtures = true;
    }
  }
  at.last_x = arena.Take(kept, config.hidden);
  at.last_qkv = arena.Take(kept, at.attention.qkv.cols, precision);
  at.logits = head.Place(logits, wanted, kept, arena);
  return at;
}

void Decoder::Impl::KeepLogitRows(const kernels::StepRows& step, Activations& at) const {
  rank.kernels.GatherRows(at.x, step.logit_rows, at.last_x);
  rank.kernels.GatherRows(at.attention.qkv, step.logit_rows, at.last_qkv);
  at.x = at.last_x;
  at.attention.qkv = at.last_qkv;
  for (Matrix* matrix : {&at.normed, &at.delta, &at.attention.attended, &at.feed_forward.gate_up,
                         &at.feed_forward.activated}) {
    matrix->rows = at.x.rows;
  }
}

void Decoder::Impl::Launch(kernels::StepRows step, const kernels::StepDraws& draws, kv::KvStore& store,
                           std::span<float> logits, absl::FunctionRef<void(int layer)> layer_done) {
  CheckLaunch(step, store, logits);
  kernels::Kernels& kernels = rank.kernels;
  const auto wanted = std::ssize(step.logit_rows);
  const bool decode = kernels::IsDecodeStep(std::ssize(step.tokens), step.sequences, step.logit_rows);
  const bool on_host = kernels.memory().host();
  const kernels::AttentionShape& heads = layers.front().attention.shape();
  step.group = heads.heads / heads.kv_heads;
  step.heads = heads.heads;
  step.head_dim = heads.head_dim;
  step.decode = decode;
  // Rows to compute: what a backend adds to make shapes repeat takes part in everything and is then ignored.
  const int64_t rows = kernels.Begin(step);
  const int64_t kept = decode ? rows : wanted;
  Activations at = Take(rows, kept, wanted, logits);
  if (std::exchange(arena_growths, arena.growths()) != arena.growths()) kernels.ForgetRecordings();
  std::vector<int64_t> marks;  // on a device: that behind each layer's KV

  const auto compute = [&] {
    std::span<const SequenceRows> sequences = step.sequences;
    std::vector<SequenceRows> singles;
    kernels.Embed(*weights.embedding, step.tokens, rank.shard.Of(config.vocabulary).begin, at.x);
    rank.Sum(at.x);
    if (embedding_scale != 1) kernels.Scale(at.x, embedding_scale);
    if (!config.post_norms) {
      kernels.RmsNorm(at.x, weights.layers.front().attention.norm.view(), stream_eps, at.normed);
    }
    for (size_t l = 0; l < layers.size(); ++l) {
      const auto& [attention, feed_forward] = layers[l];
      attention.StoreKv(config.post_norms ? at.x : at.normed, sequences, store, at.attention);
      if (on_host) {
        rank.Barrier();
        layer_done(static_cast<int>(l));
      } else if (!decode) {
        marks.push_back(kernels.memory().Mark());
      }
      if (l + 1 == layers.size()) {
        // All KV is stored. Only rows whose logits are wanted have anything left to compute.
        if (wanted == 0) return;
        if (kept < rows) {
          singles = OneByOne(step);
          sequences = singles;
          KeepLogitRows(step, at);
        }
      }
      attention.Attend(sequences, store, at.attention, at.delta);
      if (config.post_norms) {
        AddNormed(weights.layers[l].attention.norm, at);
      } else {
        kernels.AddRmsNorm(at.x, at.delta, weights.layers[l].second_norm().view(), stream_eps, at.normed);
      }
      if (const auto* dense = std::get_if<FeedForward>(&feed_forward)) {
        dense->Forward(config.post_norms ? at.x : at.normed, at.feed_forward, at.delta);
      } else {
        std::get<ExpertBlock>(feed_forward).Forward(at.normed, at.experts, at.delta, observer);
      }
      if (config.post_norms) {
        AddNormed(weights.layers[l].second_norm(), at);
      } else {
        kernels.AddRmsNorm(at.x, at.delta, NormAfter(l).view(), stream_eps, at.normed);
      }
    }
    if (config.post_norms) kernels.RmsNorm(at.x, weights.final_norm.view(), stream_eps, at.normed);
    head.Compute(at.normed, at.logits);
  };
  const Matrix activations[] = {at.x,
                                at.normed,
                                at.delta,
                                at.attention.qkv,
                                at.attention.attended,
                                at.feed_forward.gate_up,
                                at.feed_forward.activated,
                                at.experts.logits,
                                at.experts.choices,
                                at.logits};
  kernels::DeviceSampler* const drawing = draws.rows.empty() ? nullptr : sampler();
  if (drawing != nullptr) drawing->Prepare(draws);
  kernels.Prepare(activations, compute);
  // From here on sums may be waiting for other ranks.
  if (!on_host) rank.Barrier();
  kernels.Run(activations, compute);
  if (!on_host) {
    // Layers are reported once the whole step has been issued: while one leaves, the device computes the
    // next. A replayed step has no marks of its own.
    if (decode) marks.assign(layers.size(), kernels.memory().Mark());
    rank.Barrier();
    for (size_t l = 0; l < layers.size(); ++l) {
      kernels.memory().Announce(marks[l]);
      layer_done(static_cast<int>(l));
    }
  }

  InFlightStep& launched =
      in_flight.emplace_back(InFlightStep{.logits = at.logits, .wanted = wanted, .drawn = {}});
  if (drawing != nullptr) {
    // Every rank gets all columns, and draws the same tokens.
    const Matrix drawn_from = at.logits.Rows(0, wanted);
    head.Gather(drawn_from);
    drawing->Launch(drawn_from, draws);
    for (const kernels::RowDraw& draw : draws.rows) launched.drawn.push_back(draw.row);
  }
  kernels.End();
}

void Decoder::Impl::Finish(std::span<float> logits, std::span<TokenId> tokens) {
  constexpr TokenId kNone(-1);
  const InFlightStep step = std::move(in_flight.front());
  in_flight.pop_front();
  std::ranges::fill(tokens, kNone);
  if (!step.drawn.empty()) sampler()->Await(tokens);
  // Nothing is copied to the host that could be waited for, and all the same its blocks may now be given to
  // others.
  if (step.wanted == 0) rank.kernels.memory().Fence();
  if (!in_flight.empty()) return;
  std::vector<int64_t> without;
  for (int64_t r = 0, d = 0; r < step.wanted; ++r) {
    const bool asked = d < std::ssize(step.drawn) && step.drawn[static_cast<size_t>(d)] == r;
    if (!asked || tokens[static_cast<size_t>(d)] == kNone) without.push_back(r);
    d += asked ? 1 : 0;
  }
  head.Deliver(step.logits, without, logits);
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::LoadShard(const std::string& folder,
                                                            kernels::Kernels& kernels,
                                                            kernels::Collective* group,
                                                            const WeightOptions& options) {
  const Rank rank(kernels, group);
  BATON_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Load(folder));
  BATON_RETURN_IF_ERROR(CheckDivides(config, rank.shard.ranks));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, LoadQuantization(folder, checkpoint));
  Quantizer quantizer = options.cores != nullptr ? Quantizer(options.precision, *options.cores)
                                                 : Quantizer(options.precision, options.threads);
  quantizer.Report(options.progress);
  std::unique_ptr<ExpertFile> file;  // null: experts stay in memory
  if (!options.expert_file.empty()) {
    if (config.experts.experts == 0) {
      return absl::InvalidArgumentError(
          fmt::format("{}: is no mixture of experts: leave out --expert-file", folder));
    }
    if (group != nullptr) {
      return absl::InvalidArgumentError(
          "experts outside memory are for one rank: leave out --tp, or --expert-file");
    }
    BATON_ASSIGN_OR_RETURN(
        file, ExpertFile::Open(options.expert_file, ExpertFingerprint(config, options.precision)));
  }
  if (kernels.takes_transforms()) quantizer.TransformColumns(options.exponents);
  BATON_ASSIGN_OR_RETURN(Weights weights, PackWeights(folder, checkpoint, config, stored, rank.shard, kernels,
                                                      quantizer, {.outside = file != nullptr}));
  std::string digest;
  if (rank.shard.first() && (options.digest || file != nullptr)) {
    digest = WeightsDigest(checkpoint, stored, weights.converted, quantizer);
  }
  std::unique_ptr<ExpertStore> experts;
  if (file != nullptr) {
    BATON_RETURN_IF_ERROR(CheckFits(*file, digest, weights));
    ExpertIndex index = file->index();
    BATON_ASSIGN_OR_RETURN(experts, ExpertStore::Create(std::move(file), std::move(index),
                                                        options.expert_memory, kExpertReaders));
    BATON_RETURN_IF_ERROR(experts->ReadAll());
  }
  BATON_ASSIGN_OR_RETURN(RopeAngles turning, RopeAngles::Create(config));
  BATON_ASSIGN_OR_RETURN(Angles angles, Angles::Place(std::move(turning), kernels.memory()));
  Angles other;
  if (!OtherLayers(config).empty()) {
    BATON_ASSIGN_OR_RETURN(RopeAngles own, RopeAngles::Other(config));
    BATON_ASSIGN_OR_RETURN(other, Angles::Place(std::move(own), kernels.memory()));
  }
  auto impl = std::make_unique<Impl>(std::move(config), rank, std::move(weights), std::move(experts),
                                     std::move(angles), std::move(other), std::move(digest));
  impl->contradiction = stored.Contradiction();
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
const std::string& Decoder::weights_digest() const { return impl_->weights_digest; }
const std::string& Decoder::contradiction() const { return impl_->contradiction; }
int64_t Decoder::weight_bytes() const { return impl_->weights.bytes; }
const ExpertStore* Decoder::expert_store() const { return impl_->experts.get(); }
void Decoder::Observe(ExpertObserver* observer) { impl_->observer = observer; }
bool Decoder::exact_sums() const { return impl_->weights.exact_sums(); }

kv::KvLayout Decoder::LayoutFor(tensor::DType keys, tensor::DType values) const {
  return KvLayoutOf(impl_->config, impl_->rank.shard.ranks, keys, values);
}

kv::KvLayout KvLayoutOf(const ModelConfig& config, int ranks, tensor::DType keys, tensor::DType values) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads / ranks,
          .head_dim = kv::StoredHeadDim(config.head_dim),
          .key_dtype = keys,
          .value_dtype = values};
}

void Decoder::Forward(const kernels::StepRows& rows, kv::KvStore& store, std::span<float> logits,
                      absl::FunctionRef<void(int layer)> layer_done, const kernels::StepDraws& draws,
                      std::span<TokenId> tokens) {
  BATON_CHECK_EQ(draws.rows.size(), tokens.size());
  if (rows.tokens.empty()) return;
  Launch(rows, store, logits, layer_done, draws);
  Finish(logits, tokens);
}

void Decoder::Launch(const kernels::StepRows& rows, kv::KvStore& store, std::span<float> logits,
                     absl::FunctionRef<void(int layer)> layer_done, const kernels::StepDraws& draws) {
  impl_->Launch(rows, draws, store, logits, layer_done);
}

void Decoder::Finish(std::span<float> logits, std::span<TokenId> tokens) { impl_->Finish(logits, tokens); }

void Decoder::Land(const Landing& landing, kv::KvStore& store) const {
  BATON_CHECK(impl_->in_flight.empty());
  const bool turned = impl_->config.unturned_layers.empty();
  LandKv(impl_->rope, landing, store, impl_->other_layers,
         turned && !impl_->other_layers.empty() ? &impl_->other : nullptr);
}

bool Decoder::draws() const { return impl_->sampler() != nullptr; }

bool Decoder::ReservePenaltySlots(int32_t slots) {
  kernels::DeviceSampler* const has = impl_->sampler();
  return has != nullptr && has->ReservePenaltySlots(slots, impl_->config.vocabulary);
}

}  // namespace baton::model
