// QuantizationConfig: what a config.json says of how its weights were quantized: as compressed-tensors
// (github.com/vllm-project/compressed-tensors), GPTQ, AutoAWQ, the FP8 checkpoints, gpt-oss and `baton model
// quantize` write it. It says how bytes are to be read; which matrices are quantized, the tensors' names
// tell. What is not known is refused by name. Plain data, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/config/json_fields.h"

namespace baton::model {

// The values of quant_method that are known.
inline constexpr std::string_view kQuantizationMethods[] = {
    "compressed-tensors", "gptq", "awq", "fp8", "mxfp4", "baton"};

// The class of numbers that a folder of the method "baton" holds: integers of transformed columns, as the cpu
// backend makes them at load (kernels/column_transform.h).
inline constexpr std::string_view kTransformedIntegers = "cpu-i8/2";

struct QuantizationConfig {
  enum class Method {
    kNone,
    kCompressedTensors,  // int-quantized, pack-quantized, float-quantized, by layer
    kGptq,               // qweight packed along columns
    kAwq,                // of the gemm kernels: qweight packed along rows, in its own order
    kGguf,               // what each tensor of a GGUF file says of itself
    kFp8,                // float8 e4m3 with scales per tensor, row or block
    kMxfp4,              // E2M1 in groups of 32 with an E8M0 scale: experts of gpt-oss (fused_experts.h)
    kBaton,              // int8 and 4 bits of transformed columns (quantized_folder.h)
  };
  Method method = Method::kNone;
  int bits = 0;       // of a packed value: 4 or 8 (gptq, awq); of compressed-tensors each matrix shows it
  int64_t group = 0;  // columns that share a scale (gptq, awq); 0: all
  // gptq: zeros are stored less one, as its first format has it.
  bool zeros_less_one = false;
  bool symmetric = false;  // gptq: every zero is the middle of the values
  // gptq: zeros_less_one is false against config.json's word (stored_quantization.h).
  bool zeros_say_v2 = false;
  int64_t block_rows = 0, block_cols = 0;  // fp8: of a scale; 0: of the tensor or a row

  // `config` is a whole config.json. INVALID_ARGUMENT names the field.
  static absl::StatusOr<QuantizationConfig> FromJson(const Json& config);
  // `folder`: a model folder, or a GGUF file, which is not opened.
  static absl::StatusOr<QuantizationConfig> Load(const std::string& folder);

  // "gptq, 4 bits, groups of 128": for people, and for digests: all fields that change how bytes are read.
  std::string Describe() const;
  // A sentence for people about what config.json says and the tensors don't; empty: they agree.
  std::string Contradiction() const;
};

}  // namespace baton::model
