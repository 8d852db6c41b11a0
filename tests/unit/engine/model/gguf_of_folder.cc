#include "tests/unit/engine/model/gguf_of_folder.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "engine/model/checkpoint.h"
#include "text/config/config.h"

namespace baton::model {
namespace {

std::string GgufName(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.layers.", "blk."},
                                    {"model.embed_tokens.", "token_embd."},
                                    {"model.norm.", "output_norm."},
                                    {"lm_head.", "output."},
                                    {"input_layernorm", "attn_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"}});
}

// [heads, 2, half, rest] -> [heads, half, 2, rest], as converters of the architecture llama do it.
std::string Paired(const StoredTensor& tensor, int64_t heads) {
  const int64_t half = tensor.shape[0] / heads / 2;
  const auto row_bytes = static_cast<int64_t>(tensor.bytes.size()) / tensor.shape[0];
  std::string out;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t row = (head * 2 + part) * half + i;
        out.append(reinterpret_cast<const char*>(tensor.bytes.data()) + row * row_bytes,
                   static_cast<size_t>(row_bytes));
      }
    }
  }
  return out;
}

// The divisors as the converter of llama.cpp computes them.
std::string Divisors(const ModelConfig& config) {
  const RopeScaling& rope = config.rope_scaling;
  const auto original = static_cast<double>(rope.original_context);
  std::string bytes;
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const auto frequency = static_cast<float>(1 / std::pow(config.rope_theta, 2.0 * i / config.head_dim));
    const double wavelength = 2 * std::numbers::pi / double{frequency};
    double divisor = 1;
    if (wavelength > original / rope.low_freq_factor) {
      divisor = rope.factor;
    } else if (wavelength >= original / rope.high_freq_factor) {
      const double smooth =
          (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      divisor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    bytes += gguf::BytesOf(static_cast<float>(divisor));
  }
  return bytes;
}

uint32_t FormatOf(tensor::DType dtype) {
  return dtype == tensor::DType::kF32   ? gguf::kIdF32
         : dtype == tensor::DType::kF16 ? gguf::kIdF16
                                        : gguf::kIdBF16;
}

}  // namespace

gguf::GgufWriter GgufOf(const std::string& folder, bool paired) {
  const ModelConfig config = *ModelConfig::Load(folder);
  const Checkpoint checkpoint = *Checkpoint::Open(folder);
  const bool llama = config.architecture == "LlamaForCausalLM";
  const std::string name = llama ? "llama" : config.architecture == "Qwen2ForCausalLM" ? "qwen2" : "qwen3";
  const auto key = [&name](std::string_view rest) { return fmt::format("{}.{}", name, rest); };
  const auto u32 = [](auto value) { return static_cast<uint32_t>(value); };
  gguf::GgufWriter writer;
  writer.Text("general.architecture", name)
      .U32(key("block_count"), u32(config.layers))
      .U32(key("context_length"), u32(config.context))
      .U32(key("embedding_length"), u32(config.hidden))
      .U32(key("feed_forward_length"), u32(config.intermediate))
      .U32(key("attention.head_count"), u32(config.heads))
      .U32(key("attention.head_count_kv"), u32(config.kv_heads))
      .U32(key("attention.key_length"), u32(config.head_dim))
      .U32(key("attention.value_length"), u32(config.head_dim))
      .F32(key("attention.layer_norm_rms_epsilon"), config.rms_eps)
      .F32(key("rope.freq_base"), static_cast<float>(config.rope_theta));
  const RopeScaling& rope = config.rope_scaling;
  if (rope.type == RopeScaling::Type::kLinear || rope.type == RopeScaling::Type::kYarn) {
    writer.Text(key("rope.scaling.type"), rope.type == RopeScaling::Type::kLinear ? "linear" : "yarn")
        .F32(key("rope.scaling.factor"), static_cast<float>(rope.factor))
        .U32(key("rope.scaling.original_context_length"), u32(rope.original_context));
  } else if (rope.type == RopeScaling::Type::kLlama3) {
    writer.Tensor("rope_freqs.weight", {config.head_dim / 2}, gguf::kIdF32, Divisors(config));
  }
  if (!config.eos.empty()) writer.U32("tokenizer.ggml.eos_token_id", u32(config.eos[0].value()));
  for (const auto& [folder_name, tensor] : checkpoint.tensors()) {
    if (config.tied_embeddings && folder_name == "lm_head.weight") continue;
    std::string bytes(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
    if (llama && paired && folder_name.find("q_proj") != std::string::npos)
      bytes = Paired(*tensor, config.heads);
    if (llama && paired && folder_name.find("k_proj") != std::string::npos)
      bytes = Paired(*tensor, config.kv_heads);
    writer.Tensor(GgufName(folder_name), tensor->shape, FormatOf(tensor->dtype()), bytes);
  }
  return writer;
}

}  // namespace baton::model
