#include "tests/e2e/random_mixture.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "common/base/check.h"
#include "nlohmann/json.hpp"

namespace baton::e2e {
namespace {

constexpr int64_t kVocabulary = 2048;
constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 16;

// A safetensors file of float32, tensor by tensor.
class TensorsFile {
 public:
  explicit TensorsFile(uint64_t seed) : random_(seed) {}

  // Normal numbers of variance 1 / cols, so that sums over a row stay near 1.
  void Matrix(const std::string& name, int64_t rows, int64_t cols) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(cols)));
    const size_t first = values_.size();
    for (int64_t i = 0; i < rows * cols; ++i) values_.push_back(normal(random_));
    Name(name, {rows, cols}, first);
  }
  void Ones(const std::string& name, int64_t size) {
    const size_t first = values_.size();
    values_.resize(first + static_cast<size_t>(size), 1.0f);
    Name(name, {size}, first);
  }
  void Write(const std::string& path) const {
    std::string header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file << header;
    file.write(reinterpret_cast<const char*>(values_.data()),
               static_cast<std::streamsize>(values_.size() * sizeof(float)));
    BATON_CHECK(file.flush().good()) << path;
  }

 private:
  void Name(const std::string& name, const std::vector<int64_t>& shape, size_t first) {
    header_[name] = {{"dtype", "F32"},
                     {"shape", shape},
                     {"data_offsets", {first * sizeof(float), values_.size() * sizeof(float)}}};
  }

  std::mt19937_64 random_;
  nlohmann::json header_;
  std::vector<float> values_;
};

}  // namespace

void WriteRandomMixture(const std::string& folder, const MixtureShape& shape, uint64_t seed) {
  namespace fs = std::filesystem;
  fs::create_directories(folder);
  for (const char* file :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}) {
    fs::copy_file(fs::path(BATON_SOURCE_DIR) / "models/baton-tiny" / file, fs::path(folder) / file,
                  fs::copy_options::overwrite_existing);
  }
  const nlohmann::json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                                 {"model_type", "qwen3_moe"},
                                 {"attention_bias", false},
                                 {"bos_token_id", 1},
                                 {"eos_token_id", 2},
                                 {"decoder_sparse_step", 1},
                                 {"head_dim", kHeadDim},
                                 {"hidden_act", "silu"},
                                 {"hidden_size", shape.hidden},
                                 {"intermediate_size", 2 * shape.width},
                                 {"max_position_embeddings", 1024},
                                 {"mlp_only_layers", nlohmann::json::array()},
                                 {"moe_intermediate_size", shape.width},
                                 {"norm_topk_prob", true},
                                 {"num_attention_heads", kHeads},
                                 {"num_experts", shape.experts},
                                 {"num_experts_per_tok", shape.chosen},
                                 {"num_hidden_layers", shape.layers},
                                 {"num_key_value_heads", kKvHeads},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 10000.0},
                                 {"sliding_window", nullptr},
                                 {"tie_word_embeddings", false},
                                 {"torch_dtype", "float32"},
                                 {"use_sliding_window", false},
                                 {"vocab_size", kVocabulary}};
  std::ofstream(folder + "/config.json") << config.dump(1);
  TensorsFile tensors(seed);
  tensors.Matrix("model.embed_tokens.weight", kVocabulary, shape.hidden);
  tensors.Matrix("lm_head.weight", kVocabulary, shape.hidden);
  tensors.Ones("model.norm.weight", shape.hidden);
  for (int l = 0; l < shape.layers; ++l) {
    const std::string layer = fmt::format("model.layers.{}.", l);
    tensors.Ones(layer + "input_layernorm.weight", shape.hidden);
    tensors.Ones(layer + "post_attention_layernorm.weight", shape.hidden);
    tensors.Ones(layer + "self_attn.q_norm.weight", kHeadDim);
    tensors.Ones(layer + "self_attn.k_norm.weight", kHeadDim);
    tensors.Matrix(layer + "self_attn.q_proj.weight", kHeads * kHeadDim, shape.hidden);
    tensors.Matrix(layer + "self_attn.k_proj.weight", kKvHeads * kHeadDim, shape.hidden);
    tensors.Matrix(layer + "self_attn.v_proj.weight", kKvHeads * kHeadDim, shape.hidden);
    tensors.Matrix(layer + "self_attn.o_proj.weight", shape.hidden, kHeads * kHeadDim);
    tensors.Matrix(layer + "mlp.gate.weight", shape.experts, shape.hidden);
    for (int e = 0; e < shape.experts; ++e) {
      const std::string expert = fmt::format("{}mlp.experts.{}.", layer, e);
      tensors.Matrix(expert + "gate_proj.weight", shape.width, shape.hidden);
      tensors.Matrix(expert + "up_proj.weight", shape.width, shape.hidden);
      tensors.Matrix(expert + "down_proj.weight", shape.hidden, shape.width);
    }
  }
  tensors.Write(folder + "/model.safetensors");
}

}  // namespace baton::e2e
