#include "engine/model/quantized_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "engine/device/thread_pool.h"
#include "engine/model/calibration.h"
#include "engine/model/checkpoint.h"
#include "engine/model/column_exponents.h"
#include "engine/model/folder_writer.h"
#include "engine/model/lattice.h"
#include "engine/model/measure_columns.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/weights.h"
#include "nlohmann/json.hpp"
#include "text/config/config.h"
#include "text/config/json_fields.h"
#include "text/config/quantization.h"

namespace baton::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostConfigBytes = 10'000'000;
constexpr char kWeight[] = "weight";

struct TensorEntry {
  std::string name;
  StoredType type;
  std::vector<int64_t> shape;
};

// One matrix as it will be stored.
struct PlannedMatrix {
  MatrixShape shape;
  WeightPrecision precision;
  std::string prefix;  // "model.layers.0.mlp.up_proj."
  // The embeddings of a model that are its head, too: transformers shares the weight, and wants each to have
  // scales of its own.
  bool is_head = false;
  std::vector<int8_t> exponents = {};  // [cols], of transformed columns; empty: they are not transformed
};

std::vector<TensorEntry> EntriesOf(const PlannedMatrix& matrix) {
  const auto [name, rows, cols, block] = matrix.shape;
  const std::string& prefix = matrix.prefix;
  std::vector<TensorEntry> entries;
  if (matrix.precision == WeightPrecision::kInt8) {
    entries = {{prefix + kWeight, StoredType::kI8, {rows, cols}},
               {prefix + "weight_scale", StoredType::kF32, {rows, 1}}};
    if (matrix.is_head) entries.push_back({"lm_head.weight_scale", StoredType::kF32, {rows, 1}});
  } else {
    const int64_t groups = LatticeGroups(cols), words = (cols + 7) / 8, zero_words = (rows + 7) / 8;
    entries = {{prefix + "weight_packed", StoredType::kI32, {rows, words}},
               {prefix + "weight_scale", StoredType::kF32, {rows, groups}},
               {prefix + "weight_zero_point", StoredType::kI32, {zero_words, groups}},
               {prefix + "weight_shape", StoredType::kI64, {2}}};
  }
  if (!matrix.exponents.empty()) {
    entries.push_back({prefix + "weight_exponents", StoredType::kI8, {cols / block, block}});
  }
  return entries;
}

// The bytes of EntriesOf, one after the other.
std::vector<std::byte> BytesOf(const PlannedMatrix& matrix, const ConvertedMatrix& made) {
  const auto [name, rows, cols, block] = matrix.shape;
  std::vector<std::byte> bytes;
  const auto add = [&bytes](const void* from, size_t size) {
    const auto* at = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), at, at + size);
  };
  if (matrix.precision == WeightPrecision::kInt8) {
    add(made.values.data(), made.values.size());
    for (int copy = 0; copy < (matrix.is_head ? 2 : 1); ++copy) {
      add(made.scales.data(), made.scales.size() * sizeof(float));
    }
    add(matrix.exponents.data(), matrix.exponents.size());
    return bytes;
  }
  const kernels::Quantization& q = made.view.quantization;
  const int64_t groups = LatticeGroups(cols), row_bytes = (cols + 1) / 2, words = (cols + 7) / 8;
  // A value is the lower half of its byte first, as in a word of eight.
  for (int64_t r = 0; r < rows; ++r) {
    add(made.values.data() + r * row_bytes, static_cast<size_t>(row_bytes));
    bytes.resize(bytes.size() + static_cast<size_t>(words * 4 - row_bytes));
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const float scale = q.scales[r] * static_cast<float>(q.factors[r * groups + g]);
      add(&scale, sizeof scale);
    }
  }
  for (int64_t word = 0; word < (rows + 7) / 8; ++word) {
    for (int64_t g = 0; g < groups; ++g) {
      uint32_t zeros = 0;
      for (int64_t i = 0; i < 8 && word * 8 + i < rows; ++i) {
        zeros |= uint32_t{q.zeros[(word * 8 + i) * groups + g]} << (4 * i);
      }
      add(&zeros, sizeof zeros);
    }
  }
  add(&rows, sizeof rows);
  add(&cols, sizeof cols);
  add(matrix.exponents.data(), matrix.exponents.size());
  return bytes;
}

// `rounds_rows`: the rows that such a matrix multiplies are rounded, too.
OrderedJson SchemeOf(WeightPrecision precision, bool rounds_rows, std::vector<std::string> targets) {
  OrderedJson scheme = {{"targets", std::move(targets)}};
  if (precision == WeightPrecision::kInt8) {
    scheme["format"] = "int-quantized";
    scheme["weights"] = {
        {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}, {"dynamic", false}};
    if (rounds_rows) {
      scheme["input_activations"] = {
          {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
    }
  } else {
    scheme["format"] = "pack-quantized";
    scheme["weights"] = {{"num_bits", 4},
                         {"type", "int"},
                         {"symmetric", false},
                         {"strategy", "group"},
                         {"group_size", kLatticeGroup},
                         {"dynamic", false}};
  }
  return scheme;
}

// The layer that a tensor is of, by its name; -1: none.
int LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return -1;
  int layer = -1;
  const std::string_view rest = name.substr(at + kLayers.size());
  return std::from_chars(rest.data(), rest.data() + rest.size(), layer).ec == std::errc() ? layer : -1;
}

// All that other programs need to know.
OrderedJson ConfigOf(const std::vector<PlannedMatrix>& matrices, const std::set<std::string>& routers) {
  // The last parts of their names. Embeddings are looked up by ids, which other programs would round.
  std::map<std::pair<WeightPrecision, bool>, std::set<std::string>> modules;
  for (const PlannedMatrix& matrix : matrices) {
    std::string module = matrix.prefix.substr(0, matrix.prefix.size() - 1);
    module = module.substr(module.rfind('.') + 1);
    const bool rounds_rows = matrix.precision == WeightPrecision::kInt8 && module != "embed_tokens";
    modules[{matrix.precision, rounds_rows}].insert(fmt::format("re:.*{}$", module));
  }
  if (std::ranges::any_of(matrices, &PlannedMatrix::is_head)) {
    modules[{WeightPrecision::kInt8, true}].insert("re:.*lm_head$");
  }
  OrderedJson groups = OrderedJson::object();
  std::set<WeightPrecision> precisions;
  for (const auto& [kind, targets] : modules) {
    const auto& [precision, rounds_rows] = kind;
    precisions.insert(precision);
    groups[fmt::format("group_{}", groups.size())] =
        SchemeOf(precision, rounds_rows, std::vector<std::string>(targets.begin(), targets.end()));
  }
  OrderedJson ignored = OrderedJson::array();
  for (const std::string& name : routers) {
    ignored.push_back(name.substr(0, name.size() - std::strlen(kWeight) - 1));
  }
  const bool mixed = precisions.size() > 1;
  const bool int8 = precisions.contains(WeightPrecision::kInt8);
  return {{"quant_method", "compressed-tensors"},
          {"format", mixed  ? "mixed-precision"
                     : int8 ? "int-quantized"
                            : "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", ignored}};
}

}  // namespace

absl::Status WriteQuantized(const QuantizeOptions& options) {
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(options.source));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, QuantizationConfig::Load(options.source));
  if (stored.method != QuantizationConfig::Method::kNone) {
    return absl::InvalidArgumentError(fmt::format("{}: is quantized already ({}): start from the original",
                                                  options.source, stored.Describe()));
  }
  if (config.experts.fused) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} keeps the experts of a layer in one tensor, for which no quantized folder is "
                    "known: convert them "
                    "when they are loaded, by --weights {}",
                    options.source, config.architecture, Name(options.precision)));
  }
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.source));
  BATON_RETURN_IF_ERROR(CheckWeights(options.source, checkpoint, config, stored));

  std::vector<PlannedMatrix> matrices;
  std::set<std::string> converted, routers;
  int64_t all = 0, done = 0;
  for (const MatrixShape& shape : MatricesOf(checkpoint, config)) {
    const WeightPrecision precision = PrecisionFor(options.precision, shape.name);
    if (precision == WeightPrecision::kStored) {
      routers.insert(shape.name);
      continue;
    }
    if (precision == WeightPrecision::kInt4 && shape.cols % kLatticeGroup != 0) {
      return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\": {} columns are no whole groups of {}",
                                                    options.source, shape.name, shape.cols, kLatticeGroup));
    }
    matrices.push_back({.shape = shape,
                        .precision = precision,
                        .prefix = shape.name.substr(0, shape.name.size() - std::strlen(kWeight)),
                        .is_head = options.portable && config.tied_embeddings &&
                                   precision == WeightPrecision::kInt8 &&
                                   shape.name == "model.embed_tokens.weight"});
    converted.insert(shape.name);
    all += shape.rows * shape.cols;
  }
  Quantizer quantizer(options.precision, options.threads);
  BATON_ASSIGN_OR_RETURN(const auto kernels, kernels::MakeKernels("cpu", options.threads));
  if (!options.portable) {
    absl::StatusOr<ColumnExponents> exponents = MeasureColumns(options.source, *kernels);
    if (!exponents.ok()) {
      return absl::Status(exponents.status().code(),
                          fmt::format("{}: its columns can't be measured, which --portable does without: {}",
                                      options.source, std::string(exponents.status().message())));
    }
    quantizer.TransformColumns(*std::move(exponents));
    for (PlannedMatrix& matrix : matrices) {
      matrix.exponents.resize(static_cast<size_t>(matrix.shape.cols));
      if (const int8_t* measured = quantizer.exponents().Of(matrix.shape.name); measured != nullptr) {
        std::copy_n(measured, matrix.shape.cols, matrix.exponents.begin());
      }
    }
  }
  device::ThreadPool pool(options.threads);
  std::unique_ptr<Calibration> calibration;  // null: there are no texts
  if (!options.calibration.empty()) {
    BATON_ASSIGN_OR_RETURN(calibration, Calibration::Create(options.source, checkpoint, config, *kernels,
                                                            pool, quantizer, options.calibration));
  }
  BATON_RETURN_IF_ERROR(MakeTarget(options.target));

  SafetensorsHeader header;
  for (const PlannedMatrix& matrix : matrices) {
    for (const TensorEntry& e : EntriesOf(matrix)) header.Add(e.name, e.type, e.shape);
  }
  std::vector<const StoredTensor*> kept;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    // A tied model may carry its embedding a second time, under the head's name.
    if (converted.contains(name) || (tensor->shape.size() == 2 && !routers.contains(name))) continue;
    kept.push_back(tensor);
    header.Add(name, tensor->type, tensor->shape);
  }
  OutputFile file(options.target + "/model.safetensors");
  BATON_RETURN_IF_ERROR(file.Write(header.Bytes()));
  int layer = -1;
  for (const PlannedMatrix& matrix : matrices) {
    if (calibration != nullptr && LayerOf(matrix.shape.name) == layer + 1) {
      BATON_RETURN_IF_ERROR(calibration->Enter(++layer));
    }
    const StoredTensor& tensor = *checkpoint.Find(matrix.shape.name);
    const auto [name, rows, cols, block] = matrix.shape;
    const absl::StatusOr<ConvertedMatrix> made = quantizer.Convert(
        name, {.data = tensor.bytes.data(), .dtype = tensor.dtype(), .rows = rows, .cols = cols}, {0, cols},
        block);
    if (!made.ok()) {
      return absl::Status(made.status().code(), fmt::format("{}: tensor \"{}\": {}", options.source, name,
                                                            std::string(made.status().message())));
    }
    BATON_RETURN_IF_ERROR(file.Write(BytesOf(matrix, *made)));
    done += rows * cols;
    if (options.progress) options.progress(done, all);
  }
  for (const StoredTensor* tensor : kept) BATON_RETURN_IF_ERROR(file.Write(tensor->bytes));
  BATON_RETURN_IF_ERROR(file.Close());

  BATON_RETURN_IF_ERROR(CopyOthers(options.source, options.target));
  const std::string source_config = options.source + "/config.json";
  BATON_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(source_config, kMostConfigBytes));
  OrderedJson changed = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!changed.is_object()) return absl::InvalidArgumentError(source_config + ": is not a JSON object");
  changed["quantization_config"] =
      options.portable ? ConfigOf(matrices, routers)
                       : OrderedJson{{"quant_method", "baton"}, {"numerics", kTransformedIntegers}};
  const std::string dumped = changed.dump(2) + "\n";
  OutputFile config_file(options.target + "/config.json");
  BATON_RETURN_IF_ERROR(config_file.Write(dumped));
  return config_file.Close();
}

}  // namespace baton::model
