#include "tests/bench/relay/synthetic_model.h"

#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/dtype.h"
#include "nlohmann/json.hpp"

namespace baton::bench {
namespace {

constexpr int64_t kHeadDim = 64, kKvHeads = 4;

struct Shape {
  int64_t hidden, wide, layers, vocabulary;
};
constexpr Shape kSmall = {.hidden = 1024, .wide = 2816, .layers = 12, .vocabulary = 16384};
constexpr Shape kLarge = {.hidden = 1280, .wide = 3520, .layers = 20, .vocabulary = 32768};

std::vector<std::pair<std::string, std::vector<int64_t>>> Tensors(const Shape& shape) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"model.embed_tokens.weight", {shape.vocabulary, shape.hidden}}, {"model.norm.weight", {shape.hidden}}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "input_layernorm.weight", {shape.hidden}});
    tensors.push_back({prefix + "post_attention_layernorm.weight", {shape.hidden}});
    tensors.push_back({prefix + "self_attn.q_proj.weight", {shape.hidden, shape.hidden}});
    tensors.push_back({prefix + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, shape.hidden}});
    tensors.push_back({prefix + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, shape.hidden}});
    tensors.push_back({prefix + "self_attn.o_proj.weight", {shape.hidden, shape.hidden}});
    tensors.push_back({prefix + "mlp.gate_proj.weight", {shape.wide, shape.hidden}});
    tensors.push_back({prefix + "mlp.up_proj.weight", {shape.wide, shape.hidden}});
    tensors.push_back({prefix + "mlp.down_proj.weight", {shape.hidden, shape.wide}});
  }
  return tensors;
}

}  // namespace

SyntheticModel::SyntheticModel(Size size) {
  const Shape& model = size == k390M ? kLarge : kSmall;
  std::string name = (std::filesystem::temp_directory_path() / "baton-bench-XXXXXX").string();
  BATON_CHECK(mkdtemp(name.data()) != nullptr) << name;
  folder_ = name;
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"vocab_size", model.vocabulary},
                                 {"hidden_size", model.hidden},
                                 {"intermediate_size", model.wide},
                                 {"num_hidden_layers", model.layers},
                                 {"num_attention_heads", model.hidden / kHeadDim},
                                 {"num_key_value_heads", kKvHeads},
                                 {"hidden_act", "silu"},
                                 {"max_position_embeddings", 4096},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 10000.0},
                                 {"tie_word_embeddings", true},
                                 {"torch_dtype", "bfloat16"}};
  std::ofstream(folder_ / "config.json") << config;
  nlohmann::json header;
  int64_t offset = 0;
  for (const auto& [tensor, shape] : Tensors(model)) {
    int64_t bytes = 2;
    for (int64_t dim : shape) bytes *= dim;
    header[tensor] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  std::minstd_rand random(1);
  std::vector<uint16_t> values;
  for (const auto& [tensor, shape] : Tensors(model)) {
    int64_t count = 1;
    for (int64_t dim : shape) count *= dim;
    values.resize(count);
    const bool norm = shape.size() == 1;
    for (uint16_t& value : values) {
      const float uniform = static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) - 0.5f;
      value = tensor::ToBF16(norm ? 1.0f : 0.1f * uniform);
    }
    file.write(reinterpret_cast<const char*>(values.data()), count * 2);
  }
  BATON_CHECK(file.good()) << "can't write " << folder_;
}

SyntheticModel::~SyntheticModel() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace baton::bench
