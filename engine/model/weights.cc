#include "engine/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "engine/model/tensor_loader.h"

namespace baton::model {
namespace {

using MatrixSlot = std::unique_ptr<kernels::PackedMatrix>*;
using VectorSlot = kernels::Values*;

// One weight: where it goes, and the tensors that it is stacked of.
struct Source {
  std::variant<MatrixSlot, VectorSlot> to;
  std::vector<TensorPart> parts;
  int64_t cols = 0;      // of a matrix, in the file
  Range own_cols;        // of them, this rank's
  int64_t block = 0;     // of columns that are transformed together; ranks cut none
  double divisor = 1;    // of a vector
  bool product = false;  // the vector is the product of its parts
  int64_t ones = 0;      // or it is of so many ones
  // The routed expert that the matrix is of, or null; whether it is the last one of it.
  ExpertMatrices* expert = nullptr;
  ExpertId id = {};
  bool last = false;
};

constexpr char kEmbedding[] = "embed_tokens.weight", kHead[] = "lm_head.weight";

// How a checkpoint names its tensors.
struct Names {
  std::string body = "model.";  // before all but the head
  std::string head = kHead;
  std::string embedding;

  // Beside a part for images, transformers has written several prefixes: its files have the first.
  Names(const Checkpoint& checkpoint, const ModelConfig& config) {
    if (config.images_left_out) {
      for (const char* const prefix : {"language_model.model.", "model.language_model."}) {
        if (checkpoint.Find(prefix + std::string("norm.weight")) != nullptr) body = prefix;
      }
      const std::string inner = std::string("language_model.") + kHead;
      if (checkpoint.Find(inner) != nullptr) head = inner;
    }
    embedding = body + kEmbedding;
    // safetensors' save_model keeps that of two names for one matrix which the alphabet has first.
    if (config.tied_embeddings && checkpoint.Find(embedding) == nullptr && checkpoint.Find(head) != nullptr) {
      embedding = head;
    }
  }
};

// Every weight of a model, in the order in which they are loaded: the one list of them.
class WeightList {
 public:
  WeightList(const ModelConfig& config, const Names& names, const Shard& shard)
      : config_(config), names_(names), shard_(shard), hidden_{0, config.hidden} {}

  const std::vector<Source>& sources() const { return sources_; }

  // `weights` is what the list fills; it must not move before it is filled.
  void AddAll(Weights& weights) {
    const Range tokens = shard_.Of(config_.vocabulary);
    AddMatrix(weights.embedding, {{names_.embedding, config_.vocabulary, tokens}}, config_.hidden, hidden_);
    if (!config_.tied_embeddings) {
      AddMatrix(weights.own_head, {{names_.head, config_.vocabulary, tokens}}, config_.hidden, hidden_);
    }
    AddFinalNorm(weights.final_norm);
    weights.layers.resize(static_cast<size_t>(config_.layers));
    for (int l = 0; l < config_.layers; ++l) AddLayer(l, weights.layers[static_cast<size_t>(l)]);
  }
  void AddFinalNorm(kernels::Values& to) {
    AddVector(&to, {{names_.body + "norm.weight", config_.hidden, hidden_}});
    sources_.back().divisor = config_.logits_divisor;  // logits are linear in this vector
  }
  void AddLayer(int number, LayerWeights& layer) {
    const std::string prefix = fmt::format("{}layers.{}.", names_.body, number);
    AddAttention(prefix, layer.attention);
    if (config_.has_experts(number)) {
      AddExperts(number, prefix, layer.feed_forward.emplace<ExpertWeights>());
    } else {
      AddFeedForward(prefix, layer.feed_forward.emplace<FeedForwardWeights>());
    }
  }

 private:
  void AddAttention(const std::string& prefix, AttentionWeights& to) {
    const std::string self = prefix + "self_attn.";
    const int64_t dim = config_.head_dim;
    const auto heads = [&](int64_t count) {
      const Range own = shard_.Of(count);
      return Range{own.begin * dim, own.count * dim};
    };
    const int64_t q_rows = config_.heads * dim, kv_rows = config_.kv_heads * dim;
    const Range q = heads(config_.heads), kv = heads(config_.kv_heads), head{0, dim};
    AddVector(&to.norm,
              {{prefix + (config_.post_norms ? "post_attention_layernorm" : "input_layernorm") + ".weight",
                config_.hidden, hidden_}});
    const int64_t pairs = config_.paired_rows ? dim : 0;
    const auto qkv = [&](std::string_view of) -> std::vector<TensorPart> {
      if (config_.fused_rows) {
        const std::string name = fmt::format("{}qkv_proj.{}", self, of);
        const int64_t rows = q_rows + 2 * kv_rows;
        return {{name, rows, q},
                {name, rows, {q_rows + kv.begin, kv.count}},
                {name, rows, {q_rows + kv_rows + kv.begin, kv.count}}};
      }
      return {{fmt::format("{}q_proj.{}", self, of), q_rows, q, pairs},
              {fmt::format("{}k_proj.{}", self, of), kv_rows, kv, pairs},
              {fmt::format("{}v_proj.{}", self, of), kv_rows, kv}};
    };
    AddMatrix(to.qkv, qkv("weight"), config_.hidden, hidden_);
    if (config_.qkv_bias) AddVector(&to.qkv_bias, qkv("bias"));
    if (config_.late_qk_norm) {
      // Scores have the product of both weights, which queries alone may carry.
      AddVector(&to.q_norm,
                {{self + "query_layernorm.weight", dim, head}, {self + "key_layernorm.weight", dim, head}});
      sources_.back().product = true;
      AddVector(&to.k_norm, {});
      sources_.back().ones = dim;
    } else if (config_.qk_norm) {
      const bool wide = config_.wide_qk_norm;
      AddVector(&to.q_norm, {{self + "q_norm.weight", wide ? q_rows : dim, wide ? q : head}});
      AddVector(&to.k_norm, {{self + "k_norm.weight", wide ? kv_rows : dim, wide ? kv : head}});
    }
    AddMatrix(to.output, {{self + "o_proj.weight", config_.hidden, hidden_}}, q_rows, q,
              kernels::TransformBlock(dim));
    if (config_.output_bias) {
      AddVector(&to.output_bias, {{self + "o_proj.bias", config_.hidden, hidden_}});
    }
    if (config_.sinks) {
      AddVector(&to.sinks, {{self + "sinks", config_.heads, shard_.Of(config_.heads)}});
    }
  }

  void AddFeedForward(const std::string& prefix, FeedForwardWeights& to) {
    const std::string mlp = prefix + "mlp.";
    const int64_t wide = config_.intermediate;
    const Range own = shard_.Of(wide);
    AddVector(&to.norm,
              {{prefix + (config_.post_norms ? "post_feedforward_layernorm" : "post_attention_layernorm") +
                    ".weight",
                config_.hidden, hidden_}});
    const auto inner = [&](std::string_view of) {
      if (config_.fused_rows) {
        const std::string name = fmt::format("{}gate_up_proj.{}", mlp, of);
        return std::vector<TensorPart>{{name, 2 * wide, own},
                                       {name, 2 * wide, {wide + own.begin, own.count}}};
      }
      std::vector<TensorPart> parts = {{fmt::format("{}up_proj.{}", mlp, of), wide, own}};
      if (!config_.squared_relu) {
        parts.insert(parts.begin(), {fmt::format("{}gate_proj.{}", mlp, of), wide, own});
      }
      return parts;
    };
    AddMatrix(to.gate_up, inner("weight"), config_.hidden, hidden_);
    AddMatrix(to.down, {{mlp + "down_proj.weight", config_.hidden, hidden_}}, wide, own, SharedBlock(wide));
    if (config_.mlp_bias) {
      AddVector(&to.gate_up_bias, inner("bias"));
      AddVector(&to.down_bias, {{mlp + "down_proj.bias", config_.hidden, hidden_}});
    }
  }

  void AddExperts(int number, const std::string& prefix, ExpertWeights& to) {
    const ExpertConfig& mixture = config_.experts;
    const std::string block = prefix + mixture.block + ".";
    const std::string router_name = block + mixture.router_name;
    const bool numbered = mixture.numbered_names;
    AddVector(&to.norm, {{prefix + "post_attention_layernorm.weight", config_.hidden, hidden_}});
    std::vector<TensorPart> router = {{router_name + ".weight", mixture.experts, {0, mixture.experts}}};
    if (mixture.shared_gated) router.push_back({block + "shared_expert_gate.weight", 1, {0, 1}});
    AddMatrix(to.router, std::move(router), config_.hidden, hidden_);
    if (mixture.biased) {
      AddVector(&to.router_bias, {{router_name + ".bias", mixture.experts, {0, mixture.experts}}});
    }
    if (mixture.choice_bias) {
      AddVector(&to.choice_bias,
                {{router_name + ".e_score_correction_bias", mixture.experts, {0, mixture.experts}}});
    }
    to.experts.resize(static_cast<size_t>(mixture.experts) + (mixture.shared_width > 0 ? 1 : 0));
    const auto add = [&](ExpertMatrices& expert, const std::string& name, int64_t width, int id) {
      const auto of = [&](std::string_view plain, std::string_view number) {
        return fmt::format("{}{}.{}.weight", block, name, numbered ? number : plain);
      };
      const auto bias = [&](std::string_view of_matrix) {
        return fmt::format("{}{}.{}.bias", block, name, of_matrix);
      };
      const Range own = shard_.Of(width);
      AddMatrix(expert.gate_up, {{of("gate_proj", "w1"), width, own}, {of("up_proj", "w3"), width, own}},
                config_.hidden, hidden_);
      AddMatrix(expert.down, {{of("down_proj", "w2"), config_.hidden, hidden_}}, width, own,
                SharedBlock(width));
      if (id < mixture.experts) {
        for (Source* source : {&sources_.end()[-2], &sources_.back()}) {
          source->expert = &expert;
          source->id = {number, id};
        }
        sources_.back().last = true;
      }
      if (!mixture.biased) return;
      AddVector(&expert.gate_up_bias, {{bias("gate_proj"), width, own}, {bias("up_proj"), width, own}});
      AddVector(&expert.down_bias, {{bias("down_proj"), config_.hidden, hidden_}});
    };
    for (int e = 0; e < mixture.experts; ++e) {
      add(to.experts[static_cast<size_t>(e)], fmt::format("experts.{}", e), mixture.width, e);
    }
    if (mixture.shared_width > 0) {
      add(to.experts.back(), mixture.shared_name, mixture.shared_width, mixture.experts);
    }
  }

  // The block for columns that ranks share, so that up to eight ranks cut none.
  static int64_t SharedBlock(int64_t cols) {
    return kernels::TransformBlock(cols / std::min<int64_t>(8, cols & -cols));
  }

  // block: Source::block; 0: that of columns which every rank has.
  void AddMatrix(std::unique_ptr<kernels::PackedMatrix>& to, std::vector<TensorPart> parts, int64_t cols,
                 Range own_cols, int64_t block = 0) {
    sources_.push_back(
        {&to, std::move(parts), cols, own_cols, block == 0 ? kernels::TransformBlock(cols) : block});
  }
  void AddVector(kernels::Values* to, std::vector<TensorPart> parts) {
    sources_.push_back({to, std::move(parts), 0, {}, 0});
  }

  const ModelConfig& config_;
  const Names& names_;
  const Shard& shard_;
  const Range hidden_;
  std::vector<Source> sources_;
};

// Loads one weight; its packed bytes.
absl::StatusOr<int64_t> LoadOne(const Source& source, TensorLoader& loader) {
  if (const auto* matrix = std::get_if<MatrixSlot>(&source.to)) {
    BATON_ASSIGN_OR_RETURN(**matrix, loader.Matrix(source.parts, source.cols, source.own_cols, source.block));
    return **matrix == nullptr ? 0 : (**matrix)->bytes();
  }
  BATON_ASSIGN_OR_RETURN(kernels::Values values,
                         source.ones > 0 ? loader.Ones(source.ones)
                                         : loader.Vector(source.parts, source.divisor, source.product));
  const VectorSlot to = std::get<VectorSlot>(source.to);
  *to = std::move(values);
  return to->bytes();
}

// True if any row of a matrix has the form of all. The integer form of a quantized checkpoint depends on all
// of its numbers.
bool RowsTellForm(const QuantizationConfig& stored) {
  return stored.method == QuantizationConfig::Method::kNone ||
         stored.method == QuantizationConfig::Method::kMxfp4;
}

// The shape and the form of a matrix whose bytes are elsewhere: of the first rows of its parts, or of all.
absl::Status LoadForm(const Source& source, bool first_rows, TensorLoader& loader) {
  Source part_of = source;
  int64_t rows = 0;
  for (TensorPart& part : part_of.parts) {
    rows += part.own.count;
    if (first_rows) part.own.count = 1;
  }
  BATON_RETURN_IF_ERROR(LoadOne(part_of, loader).status());
  const kernels::PackedMatrix& pattern = **std::get<MatrixSlot>(source.to);
  std::unique_ptr<kernels::PackedMatrix> whole = pattern.Unplaced(rows);
  if (whole == nullptr) {
    return absl::UnimplementedError(
        "this backend keeps all experts in memory: use --backend cpu, or leave out --expert-file");
  }
  *std::get<MatrixSlot>(source.to) = std::move(whole);
  return absl::OkStatus();
}

// Without kernels, checks alone.
absl::StatusOr<Weights> LoadAll(const std::string& folder, const Checkpoint& checkpoint,
                                const ModelConfig& config, const QuantizationConfig& stored,
                                const Shard& shard, kernels::Kernels* kernels, Quantizer* quantizer,
                                const RoutedExperts& experts) {
  if (kernels != nullptr && config.experts.experts > 0) BATON_RETURN_IF_ERROR(kernels->CheckExperts());
  if (const std::string what = HostOnly(config);
      kernels != nullptr && !what.empty() && !kernels->memory().host()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the backend \"{}\" has no {}: use cpu", folder, kernels->name(), what));
  }
  TensorLoader loader(folder, checkpoint, kernels, quantizer, stored,
                      config.experts.fused ? config.experts.experts : 0);
  const Names names(checkpoint, config);
  if (config.tied_embeddings) {
    const std::string head = names.head.substr(0, names.head.rfind('.') + 1);
    BATON_RETURN_IF_ERROR(loader.TiedHead(head, names.body + "embed_tokens."));
  }
  Weights weights;
  WeightList list(config, names, shard);
  list.AddAll(weights);
  if (quantizer != nullptr) {
    int64_t values = 0;
    for (const Source& source : list.sources()) {
      if (!std::holds_alternative<MatrixSlot>(source.to)) continue;
      for (const TensorPart& part : source.parts) {
        if (PrecisionFor(quantizer->precision(), part.name) == WeightPrecision::kStored) continue;
        const bool one_row = source.expert != nullptr && experts.outside && RowsTellForm(stored);
        values += (one_row ? 1 : part.own.count) * source.cols;
      }
    }
    quantizer->Expect(values);
  }
  for (const Source& source : list.sources()) {
    if (source.expert != nullptr && experts.outside) {
      BATON_RETURN_IF_ERROR(LoadForm(source, RowsTellForm(stored), loader));
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const int64_t bytes, LoadOne(source, loader));
    weights.bytes += bytes;
    if (source.last && experts.packed != nullptr) {
      BATON_RETURN_IF_ERROR(experts.packed(source.id, *source.expert));
    }
  }
  BATON_RETURN_IF_ERROR(loader.NothingLeft(config));
  weights.converted = loader.converted();
  return weights;
}

}  // namespace

absl::StatusOr<Weights> PackWeights(const std::string& folder, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const QuantizationConfig& stored,
                                    const Shard& shard, kernels::Kernels& kernels, Quantizer& quantizer,
                                    const RoutedExperts& experts) {
  return LoadAll(folder, checkpoint, config, stored, shard, &kernels, &quantizer, experts);
}

struct StoredLayers::Reading {
  const ModelConfig& config;
  const Names names;
  const Shard whole;
  TensorLoader loader;
};

StoredLayers::StoredLayers(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
                           const QuantizationConfig& stored, kernels::Kernels& kernels, Quantizer* quantizer)
    : reading_(new Reading{.config = config,
                           .names = Names(checkpoint, config),
                           .whole = {},
                           .loader = TensorLoader(folder, checkpoint, &kernels, quantizer, stored)}) {}
StoredLayers::~StoredLayers() = default;

absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> StoredLayers::Embeddings(
    std::span<const int64_t> ids) {
  std::vector<TensorPart> rows;
  for (const int64_t id : ids) {
    rows.push_back({reading_->names.embedding, reading_->config.vocabulary, {id, 1}});
  }
  const int64_t cols = reading_->config.hidden;
  return reading_->loader.Matrix(rows, cols, {0, cols});
}

absl::StatusOr<StoredLayer> StoredLayers::Layer(int layer) {
  StoredLayer read;
  WeightList list(reading_->config, reading_->names, reading_->whole);
  list.AddLayer(layer, read.weights);
  auto& dense = std::get<FeedForwardWeights>(read.weights.feed_forward);
  for (const Source& source : list.sources()) {
    BATON_RETURN_IF_ERROR(LoadOne(source, reading_->loader).status());
    for (const auto& [matrix, tensors] :
         {std::pair{&read.weights.attention.qkv, &read.qkv},
          std::pair{&read.weights.attention.output, &read.output}, std::pair{&dense.gate_up, &read.gate_up},
          std::pair{&dense.down, &read.down}}) {
      const auto* const slot = std::get_if<MatrixSlot>(&source.to);
      if (slot == nullptr || *slot != matrix) continue;
      for (const TensorPart& part : source.parts) tensors->push_back(part.name);
    }
  }
  return read;
}

absl::StatusOr<kernels::Values> StoredLayers::FinalNorm() {
  kernels::Values norm;
  WeightList list(reading_->config, reading_->names, reading_->whole);
  list.AddFinalNorm(norm);
  BATON_RETURN_IF_ERROR(LoadOne(list.sources().front(), reading_->loader).status());
  return norm;
}

const std::string& StoredLayers::head() const {
  return reading_->config.tied_embeddings ? reading_->names.embedding : reading_->names.head;
}

std::string WeightsDigest(const Checkpoint& checkpoint, const QuantizationConfig& stored, bool converted,
                          const Quantizer& quantizer) {
  const std::string conversion =
      stored.Describe() + std::string(converted ? Name(quantizer.precision()) : std::string_view());
  if (conversion.empty()) return checkpoint.Digest();
  Sha256 sha;
  sha.Update(checkpoint.Digest());
  // Another rule for the same name needs another version.
  sha.Update(fmt::format("{}/{}", conversion, converted && quantizer.transforms() ? 2 : 1));
  if (converted) sha.Update(quantizer.exponents().Digest());
  const Sha256Digest digest = sha.Finish();
  return {digest.begin(), digest.end()};
}

std::string HostOnly(const ModelConfig& config) {
  if (config.squared_relu) return "hidden_act relu2";
  if (config.query_beta != 0 && config.context > config.rope_scaling.original_context) {
    return "llama_4_scaling_beta beyond original_max_position_embeddings";
  }
  if (config.late_qk_norm) return "norm of queries after rope";
  if (config.post_norms) return "norm behind a block";
  if (config.rotary_dim != config.head_dim) return "partial_rotary_factor other than 1";
  return config.embedding_multiplier != config.residual_multiplier
             ? "embedding_multiplier other than residual_multiplier"
             : "";
}

bool ExactSums(const FeedForwardWeights& block) { return block.down->exact_sums(); }
bool ExactSums(const ExpertWeights& block) {
  return std::ranges::all_of(block.experts,
                             [](const ExpertMatrices& expert) { return expert.down->exact_sums(); });
}

bool Weights::exact_sums() const {
  const auto sums = [](const auto& block) { return ExactSums(block); };
  return std::ranges::all_of(layers, [&sums](const LayerWeights& layer) {
    return layer.attention.output->exact_sums() && std::visit(sums, layer.feed_forward);
  });
}

absl::Status CheckWeights(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
                          const QuantizationConfig& stored) {
  return LoadAll(folder, checkpoint, config, stored, Shard{}, nullptr, nullptr, {}).status();
}

std::vector<MatrixShape> MatricesOf(const Checkpoint& checkpoint, const ModelConfig& config) {
  Weights weights;
  const Shard whole;
  const Names names(checkpoint, config);
  WeightList list(config, names, whole);
  list.AddAll(weights);
  std::vector<MatrixShape> matrices;
  for (const Source& source : list.sources()) {
    if (!std::holds_alternative<MatrixSlot>(source.to)) continue;
    for (const TensorPart& part : source.parts) {
      // Parts of one tensor follow each other.
      if (!matrices.empty() && matrices.back().name == part.name) continue;
      matrices.push_back({part.name, part.rows, source.cols, source.block});
    }
  }
  return matrices;
}

}  // namespace baton::model
