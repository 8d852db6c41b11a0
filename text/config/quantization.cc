#include "text/config/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "text/gguf/document.h"

namespace baton::model {
namespace {

constexpr int64_t kMostConfigBytes = 10'000'000;
constexpr char kWhere[] = "config.json: quantization_config";

// A text that has to be one of some, or missing.
std::string OneOf(JsonFields& fields, std::string_view name, std::span<const std::string_view> known,
                  std::string fallback) {
  const std::string text = absl::AsciiStrToLower(fields.Text(name, std::move(fallback)));
  if (std::ranges::find(known, text) == known.end()) {
    fields.Refuse(name, fmt::format("is \"{}\": known are {}", text, fmt::join(known, ", ")));
  }
  return text;
}

std::string OneOf(JsonFields& fields, std::string_view name, std::initializer_list<std::string_view> known,
                  std::string fallback) {
  return OneOf(fields, name, std::span(known.begin(), known.size()), std::move(fallback));
}

void MustBeEmpty(JsonFields& fields, std::string_view name) {
  const Json* const value = fields.Find(name);
  if (value != nullptr && !value->is_null() && !value->empty()) fields.Refuse(name, "is set: not known");
}

void ReadGptq(JsonFields& fields, QuantizationConfig& config) {
  config.bits = static_cast<int>(fields.Integer("bits", 2, 8));
  if (config.bits != 4 && config.bits != 8) {
    fields.Refuse("bits", fmt::format("is {}: known are 4 and 8", config.bits));
  }
  config.group = std::max<int64_t>(0, fields.Integer("group_size", -1, 1 << 20));
  config.zeros_less_one = OneOf(fields, "checkpoint_format", {"gptq", "gptq_v2"}, "gptq") == "gptq";
  config.symmetric = fields.Flag("sym", true);
  MustBeEmpty(fields, "dynamic");
}

void ReadAwq(JsonFields& fields, QuantizationConfig& config) {
  config.bits = static_cast<int>(fields.Integer("bits", 1, 8, fields.Integer("w_bit", 1, 8, 4)));
  if (config.bits != 4) fields.Refuse("bits", fmt::format("is {}: only 4 is known", config.bits));
  config.group = std::max<int64_t>(
      0, fields.Integer("group_size", -1, 1 << 20, fields.Integer("q_group_size", -1, 1 << 20, 128)));
  if (!fields.Flag("zero_point", true)) fields.Refuse("zero_point", "is false: only true is known");
  OneOf(fields, "version", {"gemm"}, "gemm");
}

void ReadFp8(JsonFields& fields, QuantizationConfig& config) {
  OneOf(fields, "fmt", {"e4m3", "float8_e4m3fn"}, "e4m3");
  OneOf(fields, "activation_scheme", {"dynamic", "static"}, "dynamic");
  if (!fields.Has("weight_block_size")) return;
  const std::vector<int64_t> block = fields.Integers("weight_block_size", 1, 1 << 20);
  if (block.size() != 2) {
    fields.Refuse("weight_block_size", "is not two numbers");
    return;
  }
  config.block_rows = block[0];
  config.block_cols = block[1];
}

// The weights of one of compressed-tensors' groups.
absl::Status CheckGroup(const std::string& where, const Json& group, std::string_view format) {
  if (!group.is_object()) return absl::InvalidArgumentError(fmt::format("{}: is not an object", where));
  JsonFields fields(group, where);
  const std::string stored = OneOf(
      fields, "format", {"int-quantized", "pack-quantized", "float-quantized", "naive-quantized", "dense"},
      std::string(format));
  const Json* const weights = fields.Find("weights");
  if (weights == nullptr || !weights->is_object()) {
    fields.Refuse("weights", "is missing: only groups with quantized weights are known");
    return fields.status();
  }
  JsonFields of(*weights, where + ": weights");
  const bool floats = OneOf(of, "type", {"int", "float"}, "int") == "float";
  const int64_t bits = of.Integer("num_bits", 1, 16, 8);
  if (floats ? bits != 8 : bits != 4 && bits != 8) {
    of.Refuse("num_bits", fmt::format("is {}: known are 4 and 8, and 8 of type float", bits));
  }
  OneOf(of, "strategy", {"tensor", "channel", "group", "block"}, "tensor");
  OneOf(of, "actorder", {"group", "weight", "static", "dynamic", ""}, "");
  absl::Status status = fields.status();
  status.Update(of.status());
  return status;
}

void ReadCompressedTensors(JsonFields& fields, absl::Status& status) {
  std::string format = OneOf(
      fields, "format",
      {"int-quantized", "pack-quantized", "float-quantized", "naive-quantized", "dense", "mixed-precision"},
      "dense");
  if (format == "mixed-precision") format = "dense";  // each group says its own
  OneOf(fields, "quantization_status", {"compressed"}, "compressed");
  MustBeEmpty(fields, "kv_cache_scheme");
  MustBeEmpty(fields, "transform_config");
  if (const Json* const sparse = fields.Find("sparsity_config"); sparse != nullptr && sparse->is_object()) {
    JsonFields of(*sparse, std::string(kWhere) + ": sparsity_config");
    if (!sparse->empty()) OneOf(of, "format", {"dense"}, "dense");
    status.Update(of.status());
  }
  const Json* const groups = fields.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    fields.Refuse("config_groups", "is missing");
    return;
  }
  for (const auto& [name, group] : groups->items()) {
    status.Update(CheckGroup(fmt::format("{}: {}", kWhere, name), group, format));
  }
}

}  // namespace

absl::StatusOr<QuantizationConfig> QuantizationConfig::FromJson(const Json& json) {
  QuantizationConfig config;
  if (!json.is_object()) return config;
  const auto found = json.find("quantization_config");
  if (found == json.end() || found->is_null()) return config;
  if (!found->is_object()) return absl::InvalidArgumentError(fmt::format("{}: is not an object", kWhere));
  JsonFields fields(*found, kWhere);
  const std::string method = OneOf(fields, "quant_method", kQuantizationMethods, "");
  absl::Status status = fields.status();
  if (method == "baton") {
    config.method = Method::kBaton;
    if (const std::string numerics = fields.Text("numerics", ""); numerics != kTransformedIntegers) {
      fields.Refuse("numerics", fmt::format("is \"{}\", and this version has {}: quantize the original again",
                                            numerics, kTransformedIntegers));
    }
  } else if (method == "compressed-tensors") {
    config.method = Method::kCompressedTensors;
    ReadCompressedTensors(fields, status);
  } else if (method == "gptq") {
    config.method = Method::kGptq;
    ReadGptq(fields, config);
  } else if (method == "awq") {
    config.method = Method::kAwq;
    ReadAwq(fields, config);
  } else if (method == "fp8") {
    config.method = Method::kFp8;
    ReadFp8(fields, config);
  } else if (method == "mxfp4") {
    config.method = Method::kMxfp4;
  }
  status.Update(fields.status());
  if (!status.ok()) return status;
  return config;
}

absl::StatusOr<QuantizationConfig> QuantizationConfig::Load(const std::string& folder) {
  if (gguf::IsGguf(folder)) return QuantizationConfig{.method = Method::kGguf};
  const std::string path = folder + "/config.json";
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMostConfigBytes));
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  absl::StatusOr<QuantizationConfig> config = FromJson(json);
  if (config.ok()) return config;
  return absl::Status(config.status().code(),
                      fmt::format("{}/{}", folder, std::string(config.status().message())));
}

std::string QuantizationConfig::Contradiction() const {
  if (!zeros_say_v2) return "";
  return fmt::format(
      "config.json says checkpoint_format \"gptq\", and all zeros are stored as \"gptq_v2\" has them ({}): "
      "they are "
      "read so",
      1 << (bits - 1));
}

std::string QuantizationConfig::Describe() const {
  const std::string groups = group == 0 ? "a scale per row" : fmt::format("groups of {}", group);
  switch (method) {
    case Method::kNone:
      return "";
    case Method::kCompressedTensors:
      return "compressed-tensors";
    case Method::kGptq:
      return fmt::format("gptq{}, {} bits, {}", zeros_less_one ? "" : " v2", bits, groups);
    case Method::kAwq:
      return fmt::format("awq, {} bits, {}", bits, groups);
    case Method::kGguf:
      return "gguf";
    case Method::kMxfp4:
      return "mxfp4";
    case Method::kBaton:
      return fmt::format("baton, {}", kTransformedIntegers);
    case Method::kFp8:
      return block_rows == 0 ? "fp8" : fmt::format("fp8, blocks of {} x {}", block_rows, block_cols);
  }
  return "";
}

}  // namespace baton::model
