#include "common/model/weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <set>

#include "common/base/status.h"
#include "fmt/format.h"

namespace baton::model {
namespace {

using kernels::WeightView;

// Takes tensors out of a checkpoint by name and knows at the end which were left. Without kernels it checks
// names and shapes, and leaves what it would fill empty.
class Taker {
 public:
  Taker(const std::string& folder, const Checkpoint& checkpoint, kernels::Kernels* kernels)
      : folder_(folder), checkpoint_(checkpoint), kernels_(kernels) {}

  // A tensor of `rows` rows (or values), of which this rank holds `own`.
  struct Part {
    std::string name;
    int64_t rows;
    Range own;
  };
  // Stacks tensors of [rows, cols] each, of which this rank holds the columns `own_cols`.
  absl::Status Matrix(std::initializer_list<Part> parts, int64_t cols, Range own_cols,
                      std::unique_ptr<kernels::PackedMatrix>& out) {
    std::vector<WeightView> views;
    std::vector<std::vector<std::byte>> copies;  // of what lies unaligned in its file or is cut out of rows
    for (const Part& part : parts) {
      const int64_t shape[] = {part.rows, cols};
      BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Take(part.name, shape));
      if (kernels_ == nullptr) continue;
      const int64_t size = tensor::SizeOf(tensor->dtype);
      const std::byte* data = tensor->bytes.data() + part.own.begin * cols * size;
      if (own_cols.count != cols) {
        std::vector<std::byte>& cut = copies.emplace_back();
        cut.reserve(static_cast<size_t>(part.own.count * own_cols.count * size));
        for (int64_t r = 0; r < part.own.count; ++r) {
          const std::byte* begin = data + (r * cols + own_cols.begin) * size;
          cut.insert(cut.end(), begin, begin + own_cols.count * size);
        }
        data = cut.data();
      } else if (reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size) != 0) {
        data = copies.emplace_back(data, data + part.own.count * cols * size).data();
      }
      views.push_back({.data = data, .dtype = tensor->dtype, .rows = part.own.count, .cols = own_cols.count});
    }
    if (kernels_ == nullptr) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> packed = kernels_->Pack(views);
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          fmt::format("{}: tensor \"{}\": {}", folder_, parts.begin()->name,
                                      std::string(packed.status().message())));
    }
    out = *std::move(packed);
    return absl::OkStatus();
  }

  // Vectors of `rows` values each, one after the other, as float32.
  absl::Status Vector(std::initializer_list<Part> parts, kernels::Values& out) {
    std::vector<float> values;
    for (const Part& part : parts) {
      const int64_t shape[] = {part.rows};
      BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Take(part.name, shape));
      if (kernels_ == nullptr) continue;
      for (int64_t i = 0; i < part.own.count; ++i)
        values.push_back(tensor::ValueAt(tensor->bytes.data(), tensor->dtype, part.own.begin + i));
    }
    if (kernels_ == nullptr) return absl::OkStatus();
    BATON_ASSIGN_OR_RETURN(out, kernels::Values::Place(std::move(values), kernels_->memory()));
    return absl::OkStatus();
  }

  // A tied model may still carry its head. It has to be the embedding then, or one of the two would be
  // ignored.
  absl::Status TiedHead(const std::string& head, const std::string& embedding) {
    const StoredTensor* copy = checkpoint_.Find(head);
    const StoredTensor* original = checkpoint_.Find(embedding);
    if (copy == nullptr || original == nullptr) return absl::OkStatus();
    taken_.insert(head);
    if (copy->dtype == original->dtype && copy->shape == original->shape &&
        std::ranges::equal(copy->bytes, original->bytes)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(fmt::format(
        "{}: tie_word_embeddings is true, but \"{}\" differs from \"{}\"", folder_, head, embedding));
  }

  // Every tensor must have been of use. Old checkpoints carry rope frequencies, which follow from the config.
  absl::Status NothingLeft(std::string_view architecture) const {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (taken_.contains(name) || name.ends_with(".rotary_emb.inv_freq")) continue;
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor \"{}\" {} is not known to {} with this config.json", folder_, name,
                      ShapeText(tensor->shape), architecture));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<const StoredTensor*> Take(const std::string& name, std::span<const int64_t> shape) {
    const StoredTensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor \"{}\" {} is missing", folder_, name, ShapeText(shape)));
    }
    if (!std::ranges::equal(tensor->shape, shape)) {
      return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" has shape {}, config.json asks for {}",
                                                    folder_, name, ShapeText(tensor->shape),
                                                    ShapeText(shape)));
    }
    taken_.insert(name);
    return tensor;
  }

  const std::string& folder_;
  const Checkpoint& checkpoint_;
  kernels::Kernels* const kernels_;
  std::set<std::string, std::less<>> taken_;
};

absl::Status PackLayer(const ModelConfig& config, const Shard& shard, int index, Taker& taker,
                       LayerWeights& layer) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t dim = config.head_dim;
  const auto heads = [&](int64_t count) {
    const Range own = shard.Of(count);
    return Range{own.begin * dim, own.count * dim};
  };
  const Taker::Part hidden{"", config.hidden, {0, config.hidden}};
  const Taker::Part q{"", config.heads * dim, heads(config.heads)};
  const Taker::Part kv{"", config.kv_heads * dim, heads(config.kv_heads)};
  const Taker::Part wide{"", config.intermediate, shard.Of(config.intermediate)};
  const Taker::Part head{"", dim, {0, dim}};
  // Added once, by rank 0, to what is then summed over all ranks.
  const bool adds_bias = shard.first();
  kernels::Values unused;
  const auto named = [](const std::string& name, Taker::Part part) {
    part.name = name;
    return part;
  };

  BATON_RETURN_IF_ERROR(taker.Vector({named(prefix + "input_layernorm.weight", hidden)}, layer.input_norm));
  BATON_RETURN_IF_ERROR(
      taker.Matrix({named(attention + "q_proj.weight", q), named(attention + "k_proj.weight", kv),
                    named(attention + "v_proj.weight", kv)},
                   config.hidden, hidden.own, layer.qkv));
  if (config.qkv_bias) {
    BATON_RETURN_IF_ERROR(
        taker.Vector({named(attention + "q_proj.bias", q), named(attention + "k_proj.bias", kv),
                      named(attention + "v_proj.bias", kv)},
                     layer.qkv_bias));
  }
  if (config.qk_norm) {
    BATON_RETURN_IF_ERROR(taker.Vector({named(attention + "q_norm.weight", head)}, layer.q_norm));
    BATON_RETURN_IF_ERROR(taker.Vector({named(attention + "k_norm.weight", head)}, layer.k_norm));
  }
  BATON_RETURN_IF_ERROR(
      taker.Matrix({named(attention + "o_proj.weight", hidden)}, q.rows, q.own, layer.output));
  if (config.output_bias) {
    BATON_RETURN_IF_ERROR(
        taker.Vector({named(attention + "o_proj.bias", hidden)}, adds_bias ? layer.output_bias : unused));
  }

  BATON_RETURN_IF_ERROR(
      taker.Vector({named(prefix + "post_attention_layernorm.weight", hidden)}, layer.post_norm));
  BATON_RETURN_IF_ERROR(
      taker.Matrix({named(mlp + "gate_proj.weight", wide), named(mlp + "up_proj.weight", wide)},
                   config.hidden, hidden.own, layer.gate_up));
  BATON_RETURN_IF_ERROR(
      taker.Matrix({named(mlp + "down_proj.weight", hidden)}, wide.rows, wide.own, layer.down));
  if (config.mlp_bias) {
    BATON_RETURN_IF_ERROR(taker.Vector(
        {named(mlp + "gate_proj.bias", wide), named(mlp + "up_proj.bias", wide)}, layer.gate_up_bias));
    BATON_RETURN_IF_ERROR(
        taker.Vector({named(mlp + "down_proj.bias", hidden)}, adds_bias ? layer.down_bias : unused));
  }
  return absl::OkStatus();
}

absl::StatusOr<Weights> TakeAll(const std::string& folder, const Checkpoint& checkpoint,
                                const ModelConfig& config, const Shard& shard, kernels::Kernels* kernels) {
  const std::string embedding = "model.embed_tokens.weight";
  const std::string head = "lm_head.weight";
  const Range hidden{0, config.hidden};
  const Range tokens = shard.Of(config.vocabulary);
  Taker taker(folder, checkpoint, kernels);
  Weights weights;
  // Of two names for one matrix, safetensors' save_model keeps the first in the alphabet.
  const bool under_head =
      config.tied_embeddings && checkpoint.Find(embedding) == nullptr && checkpoint.Find(head) != nullptr;
  BATON_RETURN_IF_ERROR(taker.Matrix({{under_head ? head : embedding, config.vocabulary, tokens}},
                                     config.hidden, hidden, weights.embedding));
  if (config.tied_embeddings) {
    BATON_RETURN_IF_ERROR(taker.TiedHead(head, embedding));
  } else {
    BATON_RETURN_IF_ERROR(
        taker.Matrix({{head, config.vocabulary, tokens}}, config.hidden, hidden, weights.own_head));
  }
  BATON_RETURN_IF_ERROR(taker.Vector({{"model.norm.weight", config.hidden, hidden}}, weights.final_norm));
  for (int l = 0; l < config.layers; ++l) {
    BATON_RETURN_IF_ERROR(PackLayer(config, shard, l, taker, weights.layers.emplace_back()));
  }
  BATON_RETURN_IF_ERROR(taker.NothingLeft(config.architecture));
  return weights;
}

}  // namespace

absl::StatusOr<Weights> PackWeights(const std::string& folder, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const Shard& shard,
                                    kernels::Kernels& kernels) {
  return TakeAll(folder, checkpoint, config, shard, &kernels);
}

absl::Status CheckWeights(const std::string& folder, const Checkpoint& checkpoint,
                          const ModelConfig& config) {
  return TakeAll(folder, checkpoint, config, Shard{}, nullptr).status();
}

int64_t Weights::bytes() const {
  int64_t total = embedding->bytes() + (own_head ? own_head->bytes() : 0) + final_norm.bytes();
  for (const LayerWeights& layer : layers) {
    for (const auto* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      total += (*matrix)->bytes();
    for (const auto* vector : {&layer.input_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm,
                               &layer.output_bias, &layer.post_norm, &layer.gate_up_bias, &layer.down_bias}) {
      total += vector->bytes();
    }
  }
  return total;
}

}  // namespace baton::model
