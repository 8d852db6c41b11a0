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

constexpr int64_t kHidden = 1024, kWide = 2816, kLayers = 12, kHeads = 16, kKvHeads = 4, kVocabulary = 16384;
constexpr int64_t kHeadDim = kHidden / kHeads;

std::vector<std::pair<std::string, std::vector<int64_t>>> Tensors() {
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"model.embed_tokens.weight", {kVocabulary, kHidden}}, {"model.norm.weight", {kHidden}}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "input_layernorm.weight", {kHidden}});
    tensors.push_back({prefix + "post_attention_layernorm.weight", {kHidden}});
    tensors.push_back({prefix + "self_attn.q_proj.weight", {kHidden, kHidden}});
    tensors.push_back({prefix + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, kHidden}});
    tensors.push_back({prefix + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden}});
    tensors.push_back({prefix + "self_attn.o_proj.weight", {kHidden, kHidden}});
    tensors.push_back({prefix + "mlp.gate_proj.weight", {kWide, kHidden}});
    tensors.push_back({prefix + "mlp.up_proj.weight", {kWide, kHidden}});
    tensors.push_back({prefix + "mlp.down_proj.weight", {kHidden, kWide}});
  }
  return tensors;
}

}  // namespace

SyntheticModel::SyntheticModel() {
  std::string name = (std::filesystem::temp_directory_path() / "baton-bench-XXXXXX").string();
  BATON_CHECK(mkdtemp(name.data()) != nullptr) << name;
  folder_ = name;
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", kHidden},
                                 {"intermediate_size", kWide},
                                 {"num_hidden_layers", kLayers},
                                 {"num_attention_heads", kHeads},
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
  for (const auto& [tensor, shape] : Tensors()) {
    int64_t bytes = 2;
    for (int64_t size : shape) bytes *= size;
    header[tensor] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
  const uint64_t size = text.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;
  std::minstd_rand random(1);
  std::vector<uint16_t> values;
  for (const auto& [tensor, shape] : Tensors()) {
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
