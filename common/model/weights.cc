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

// Takes tensors out of a checkpoint by name and knows at the end which were left.
class Taker {
 public:
  Taker(const std::string& folder, const Checkpoint& checkpoint, kernels::Kernels& kernels)
      : folder_(folder), checkpoint_(checkpoint), kernels_(kernels) {}

  struct Part {
    std::string name;
    int64_t rows;
  };
  // Stacks tensors of [rows, cols] each.
  absl::Status Matrix(std::initializer_list<Part> parts, int64_t cols,
                      std::unique_ptr<kernels::PackedMatrix>& out) {
    std::vector<WeightView> views;
    std::vector<std::vector<std::byte>> aligned;  // copies of what lies unaligned in its file
    for (const Part& part : parts) {
      const int64_t shape[] = {part.rows, cols};
      BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Take(part.name, shape));
      const std::byte* data = tensor->bytes.data();
      if (reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(tensor::SizeOf(tensor->dtype)) != 0) {
        data = aligned.emplace_back(tensor->bytes.begin(), tensor->bytes.end()).data();
      }
      views.push_back({.data = data, .dtype = tensor->dtype, .rows = part.rows, .cols = cols});
    }
    absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> packed = kernels_.Pack(views);
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          fmt::format("{}: tensor \"{}\": {}", folder_, parts.begin()->name,
                                      std::string(packed.status().message())));
    }
    out = *std::move(packed);
    return absl::OkStatus();
  }

  // Appends vectors of `rows` values each, as float32.
  absl::Status Vector(std::initializer_list<Part> parts, std::vector<float>& out) {
    for (const Part& part : parts) {
      const int64_t shape[] = {part.rows};
      BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Take(part.name, shape));
      for (int64_t i = 0; i < part.rows; ++i) out.push_back(ValueAt(*tensor, i));
    }
    return absl::OkStatus();
  }

  // A tied model may still carry its head. It has to be the embedding then, or one of the two would be
  // ignored.
  absl::Status TiedHead(const std::string& head, const std::string& embedding) {
    const StoredTensor* copy = checkpoint_.Find(head);
    if (copy == nullptr) return absl::OkStatus();
    taken_.insert(head);
    const StoredTensor* original = checkpoint_.Find(embedding);
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

  static float ValueAt(const StoredTensor& tensor, int64_t i) {
    const std::byte* value = tensor.bytes.data() + i * tensor::SizeOf(tensor.dtype);
    if (tensor.dtype == tensor::DType::kF32) {
      float number;
      std::memcpy(&number, value, sizeof number);
      return number;
    }
    uint16_t bits;
    std::memcpy(&bits, value, sizeof bits);
    return tensor.dtype == tensor::DType::kBF16 ? tensor::FromBF16(bits) : tensor::FromF16(bits);
  }

  const std::string& folder_;
  const Checkpoint& checkpoint_;
  kernels::Kernels& kernels_;
  std::set<std::string, std::less<>> taken_;
};

absl::Status PackLayer(const ModelConfig& config, int index, Taker& taker, LayerWeights& layer) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;

  BATON_RETURN_IF_ERROR(taker.Vector({{prefix + "input_layernorm.weight", config.hidden}}, layer.input_norm));
  BATON_RETURN_IF_ERROR(taker.Matrix({{attention + "q_proj.weight", q},
                                      {attention + "k_proj.weight", kv},
                                      {attention + "v_proj.weight", kv}},
                                     config.hidden, layer.qkv));
  if (config.qkv_bias) {
    BATON_RETURN_IF_ERROR(taker.Vector(
        {{attention + "q_proj.bias", q}, {attention + "k_proj.bias", kv}, {attention + "v_proj.bias", kv}},
        layer.qkv_bias));
  }
  if (config.qk_norm) {
    BATON_RETURN_IF_ERROR(taker.Vector({{attention + "q_norm.weight", config.head_dim}}, layer.q_norm));
    BATON_RETURN_IF_ERROR(taker.Vector({{attention + "k_norm.weight", config.head_dim}}, layer.k_norm));
  }
  BATON_RETURN_IF_ERROR(taker.Matrix({{attention + "o_proj.weight", config.hidden}}, q, layer.output));
  if (config.output_bias) {
    BATON_RETURN_IF_ERROR(taker.Vector({{attention + "o_proj.bias", config.hidden}}, layer.output_bias));
  }

  BATON_RETURN_IF_ERROR(
      taker.Vector({{prefix + "post_attention_layernorm.weight", config.hidden}}, layer.post_norm));
  BATON_RETURN_IF_ERROR(taker.Matrix(
      {{mlp + "gate_proj.weight", config.intermediate}, {mlp + "up_proj.weight", config.intermediate}},
      config.hidden, layer.gate_up));
  BATON_RETURN_IF_ERROR(
      taker.Matrix({{mlp + "down_proj.weight", config.hidden}}, config.intermediate, layer.down));
  if (config.mlp_bias) {
    BATON_RETURN_IF_ERROR(taker.Vector(
        {{mlp + "gate_proj.bias", config.intermediate}, {mlp + "up_proj.bias", config.intermediate}},
        layer.gate_up_bias));
    BATON_RETURN_IF_ERROR(taker.Vector({{mlp + "down_proj.bias", config.hidden}}, layer.down_bias));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Weights> PackWeights(const std::string& folder, const Checkpoint& checkpoint,
                                    const ModelConfig& config, kernels::Kernels& kernels) {
  const std::string embedding = "model.embed_tokens.weight";
  const std::string head = "lm_head.weight";
  Taker taker(folder, checkpoint, kernels);
  Weights weights;
  BATON_RETURN_IF_ERROR(taker.Matrix({{embedding, config.vocabulary}}, config.hidden, weights.embedding));
  if (config.tied_embeddings) {
    BATON_RETURN_IF_ERROR(taker.TiedHead(head, embedding));
  } else {
    BATON_RETURN_IF_ERROR(taker.Matrix({{head, config.vocabulary}}, config.hidden, weights.own_head));
  }
  BATON_RETURN_IF_ERROR(taker.Vector({{"model.norm.weight", config.hidden}}, weights.final_norm));
  for (int l = 0; l < config.layers; ++l) {
    BATON_RETURN_IF_ERROR(PackLayer(config, l, taker, weights.layers.emplace_back()));
  }
  BATON_RETURN_IF_ERROR(taker.NothingLeft(config.architecture));
  return weights;
}

int64_t Weights::bytes() const {
  const auto size = [](const std::vector<float>& values) {
    return static_cast<int64_t>(values.size() * sizeof(float));
  };
  int64_t total = embedding->bytes() + (own_head ? own_head->bytes() : 0) + size(final_norm);
  for (const LayerWeights& layer : layers) {
    for (const auto* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      total += (*matrix)->bytes();
    for (const auto* vector : {&layer.input_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm,
                               &layer.output_bias, &layer.post_norm, &layer.gate_up_bias, &layer.down_bias}) {
      total += size(*vector);
    }
  }
  return total;
}

}  // namespace baton::model
