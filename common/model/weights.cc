#include "common/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/status.h"
#include "common/model/tensor_loader.h"

namespace baton::model {
namespace {

using MatrixSlot = std::unique_ptr<kernels::PackedMatrix>*;
using VectorSlot = kernels::Values*;

// One weight: where it goes, and the tensors that it is stacked of.
struct Source {
  std::variant<MatrixSlot, VectorSlot> to;
  std::vector<TensorPart> parts;
  int64_t cols = 0;  // of a matrix, in the file
  Range own_cols;    // of them, this rank's
};

// Every weight of a model, in the order in which they are loaded: the one list of them.
class WeightList {
 public:
  WeightList(const ModelConfig& config, const Shard& shard)
      : config_(config), shard_(shard), hidden_{0, config.hidden} {}

  const std::vector<Source>& sources() const { return sources_; }

  // `weights` is what the list fills; it must not move before it is filled.
  void AddAll(const std::string& embedding, const std::string& head, Weights& weights) {
    const Range tokens = shard_.Of(config_.vocabulary);
    AddMatrix(weights.embedding, {{embedding, config_.vocabulary, tokens}}, config_.hidden, hidden_);
    if (!config_.tied_embeddings) {
      AddMatrix(weights.own_head, {{head, config_.vocabulary, tokens}}, config_.hidden, hidden_);
    }
    AddVector(&weights.final_norm, {{"model.norm.weight", config_.hidden, hidden_}});
    weights.layers.resize(static_cast<size_t>(config_.layers));
    for (int l = 0; l < config_.layers; ++l) {
      LayerWeights& layer = weights.layers[static_cast<size_t>(l)];
      const std::string prefix = fmt::format("model.layers.{}.", l);
      AddAttention(prefix, layer.attention);
      AddFeedForward(prefix, layer.feed_forward);
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
    AddVector(&to.norm, {{prefix + "input_layernorm.weight", config_.hidden, hidden_}});
    AddMatrix(to.qkv,
              {{self + "q_proj.weight", q_rows, q},
               {self + "k_proj.weight", kv_rows, kv},
               {self + "v_proj.weight", kv_rows, kv}},
              config_.hidden, hidden_);
    if (config_.qkv_bias) {
      AddVector(&to.qkv_bias, {{self + "q_proj.bias", q_rows, q},
                               {self + "k_proj.bias", kv_rows, kv},
                               {self + "v_proj.bias", kv_rows, kv}});
    }
    if (config_.qk_norm) {
      AddVector(&to.q_norm, {{self + "q_norm.weight", dim, head}});
      AddVector(&to.k_norm, {{self + "k_norm.weight", dim, head}});
    }
    AddMatrix(to.output, {{self + "o_proj.weight", config_.hidden, hidden_}}, q_rows, q);
    if (config_.output_bias) {
      AddVector(&to.output_bias, {{self + "o_proj.bias", config_.hidden, hidden_}});
    }
  }

  void AddFeedForward(const std::string& prefix, FeedForwardWeights& to) {
    const std::string mlp = prefix + "mlp.";
    const int64_t wide = config_.intermediate;
    const Range own = shard_.Of(wide);
    AddVector(&to.norm, {{prefix + "post_attention_layernorm.weight", config_.hidden, hidden_}});
    AddMatrix(to.gate_up, {{mlp + "gate_proj.weight", wide, own}, {mlp + "up_proj.weight", wide, own}},
              config_.hidden, hidden_);
    AddMatrix(to.down, {{mlp + "down_proj.weight", config_.hidden, hidden_}}, wide, own);
    if (config_.mlp_bias) {
      AddVector(&to.gate_up_bias, {{mlp + "gate_proj.bias", wide, own}, {mlp + "up_proj.bias", wide, own}});
      AddVector(&to.down_bias, {{mlp + "down_proj.bias", config_.hidden, hidden_}});
    }
  }

  void AddMatrix(std::unique_ptr<kernels::PackedMatrix>& to, std::vector<TensorPart> parts, int64_t cols,
                 Range own_cols) {
    sources_.push_back({&to, std::move(parts), cols, own_cols});
  }
  void AddVector(kernels::Values* to, std::vector<TensorPart> parts) {
    sources_.push_back({to, std::move(parts), 0, {}});
  }

  const ModelConfig& config_;
  const Shard& shard_;
  const Range hidden_;
  std::vector<Source> sources_;
};

// Loads one weight; its packed bytes.
absl::StatusOr<int64_t> LoadOne(const Source& source, TensorLoader& loader) {
  if (const auto* matrix = std::get_if<MatrixSlot>(&source.to)) {
    BATON_ASSIGN_OR_RETURN(**matrix, loader.Matrix(source.parts, source.cols, source.own_cols));
    return **matrix == nullptr ? 0 : (**matrix)->bytes();
  }
  BATON_ASSIGN_OR_RETURN(kernels::Values values, loader.Vector(source.parts));
  const VectorSlot to = std::get<VectorSlot>(source.to);
  *to = std::move(values);
  return to->bytes();
}

constexpr char kEmbedding[] = "model.embed_tokens.weight", kHead[] = "lm_head.weight";

// The name of the embedding: of two names for one matrix, safetensors' save_model keeps the first in the
// alphabet.
std::string EmbeddingOf(const Checkpoint& checkpoint, const ModelConfig& config) {
  const bool under_head =
      config.tied_embeddings && checkpoint.Find(kEmbedding) == nullptr && checkpoint.Find(kHead) != nullptr;
  return under_head ? kHead : kEmbedding;
}

// Without kernels, checks alone.
absl::StatusOr<Weights> LoadAll(const std::string& folder, const Checkpoint& checkpoint,
                                const ModelConfig& config, const QuantizationConfig& stored,
                                const Shard& shard, kernels::Kernels* kernels, Quantizer* quantizer) {
  TensorLoader loader(folder, checkpoint, kernels, quantizer, stored);
  if (config.tied_embeddings) BATON_RETURN_IF_ERROR(loader.TiedHead(kHead, kEmbedding));
  Weights weights;
  WeightList list(config, shard);
  list.AddAll(EmbeddingOf(checkpoint, config), kHead, weights);
  if (quantizer != nullptr) {
    int64_t values = 0;
    for (const Source& source : list.sources()) {
      if (!std::holds_alternative<MatrixSlot>(source.to)) continue;
      for (const TensorPart& part : source.parts) values += part.own.count * source.cols;
    }
    quantizer->Expect(values);
  }
  for (const Source& source : list.sources()) {
    BATON_ASSIGN_OR_RETURN(const int64_t bytes, LoadOne(source, loader));
    weights.bytes += bytes;
  }
  BATON_RETURN_IF_ERROR(loader.NothingLeft(config.architecture));
  weights.converted = loader.converted();
  return weights;
}

}  // namespace

absl::StatusOr<Weights> PackWeights(const std::string& folder, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const QuantizationConfig& stored,
                                    const Shard& shard, kernels::Kernels& kernels, Quantizer& quantizer) {
  return LoadAll(folder, checkpoint, config, stored, shard, &kernels, &quantizer);
}

bool Weights::exact_sums() const {
  return std::ranges::all_of(layers, [](const LayerWeights& layer) {
    return layer.attention.output->exact_sums() && layer.feed_forward.down->exact_sums();
  });
}

absl::Status CheckWeights(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
                          const QuantizationConfig& stored) {
  return LoadAll(folder, checkpoint, config, stored, Shard{}, nullptr, nullptr).status();
}

std::vector<MatrixShape> MatricesOf(const Checkpoint& checkpoint, const ModelConfig& config) {
  Weights weights;
  const Shard whole;
  WeightList list(config, whole);
  list.AddAll(EmbeddingOf(checkpoint, config), kHead, weights);
  std::vector<MatrixShape> matrices;
  for (const Source& source : list.sources()) {
    if (!std::holds_alternative<MatrixSlot>(source.to)) continue;
    for (const TensorPart& part : source.parts) matrices.push_back({part.name, part.rows, source.cols});
  }
  return matrices;
}

}  // namespace baton::model
