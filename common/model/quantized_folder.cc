#include "common/model/quantized_folder.h"

#include <fmt/format.h>

#include <bit>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model/checkpoint.h"
#include "common/model/config/config.h"
#include "common/model/config/json_fields.h"
#include "common/model/config/quantization.h"
#include "common/model/lattice.h"
#include "common/model/stored_matrix.h"
#include "common/model/weights.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

constexpr int64_t kMostConfigBytes = 10'000'000;
constexpr char kWeight[] = "weight";

// A file that is written from its beginning to its end; it is removed unless Close succeeded.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {}
  ~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  absl::Status Write(std::span<const std::byte> bytes) {
    if (file_ == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
      return Failed();
    return absl::OkStatus();
  }
  absl::Status Close() {
    if (file_ == nullptr || std::fflush(file_) != 0 || std::ferror(file_) != 0) return Failed();
    const int closed = std::fclose(std::exchange(file_, nullptr));
    return closed == 0 ? absl::OkStatus() : Failed();
  }

 private:
  absl::Status Failed() const {
    return absl::UnavailableError(
        fmt::format("{}: can't be written: {}", path_, std::generic_category().message(errno)));
  }
  const std::string path_;
  std::FILE* file_;
};

struct TensorEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// One matrix as it will be stored.
struct PlannedMatrix {
  MatrixShape shape;
  WeightPrecision precision;
  std::string prefix;  // "model.layers.0.mlp.up_proj."
};

std::vector<TensorEntry> EntriesOf(const PlannedMatrix& matrix) {
  const auto [name, rows, cols] = matrix.shape;
  const std::string& prefix = matrix.prefix;
  if (matrix.precision == WeightPrecision::kInt8) {
    return {{prefix + kWeight, "I8", {rows, cols}, rows * cols},
            {prefix + "weight_scale", "F32", {rows, 1}, rows * 4}};
  }
  const int64_t groups = LatticeGroups(cols), words = (cols + 7) / 8, zero_words = (rows + 7) / 8;
  return {{prefix + "weight_packed", "I32", {rows, words}, rows * words * 4},
          {prefix + "weight_scale", "F32", {rows, groups}, rows * groups * 4},
          {prefix + "weight_zero_point", "I32", {zero_words, groups}, zero_words * groups * 4},
          {prefix + "weight_shape", "I64", {2}, 16}};
}

// The bytes of EntriesOf, one after the other.
std::vector<std::byte> BytesOf(const PlannedMatrix& matrix, const ConvertedMatrix& made) {
  const auto [name, rows, cols] = matrix.shape;
  std::vector<std::byte> bytes;
  const auto add = [&bytes](const void* from, size_t size) {
    const auto* at = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), at, at + size);
  };
  if (matrix.precision == WeightPrecision::kInt8) {
    add(made.values.data(), made.values.size());
    add(made.scales.data(), made.scales.size() * sizeof(float));
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
  return bytes;
}

OrderedJson SchemeOf(WeightPrecision precision, std::vector<std::string> targets) {
  OrderedJson scheme = {{"targets", std::move(targets)}};
  if (precision == WeightPrecision::kInt8) {
    scheme["format"] = "int-quantized";
    scheme["weights"] = {
        {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}, {"dynamic", false}};
    scheme["input_activations"] = {
        {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
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

// What other programs need to know.
OrderedJson ConfigOf(const std::vector<PlannedMatrix>& matrices) {
  std::map<WeightPrecision, std::set<std::string>> modules;  // by the last parts of their names
  for (const PlannedMatrix& matrix : matrices) {
    std::string module = matrix.prefix.substr(0, matrix.prefix.size() - 1);
    module = module.substr(module.rfind('.') + 1);
    modules[matrix.precision].insert(fmt::format("re:.*{}$", module));
  }
  OrderedJson groups = OrderedJson::object();
  for (const auto& [precision, targets] : modules) {
    groups[fmt::format("group_{}", groups.size())] =
        SchemeOf(precision, std::vector<std::string>(targets.begin(), targets.end()));
  }
  const bool mixed = modules.size() > 1;
  const bool int8 = modules.contains(WeightPrecision::kInt8);
  return {{"quant_method", "compressed-tensors"},
          {"format", mixed  ? "mixed-precision"
                     : int8 ? "int-quantized"
                            : "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", OrderedJson::array()}};
}

absl::Status CopyOthers(const fs::path& source, const fs::path& target) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(source, error)) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file() || name == "config.json" || name.ends_with(".safetensors") ||
        name.ends_with(".safetensors.index.json")) {
      continue;
    }
    fs::copy_file(entry.path(), target / name, fs::copy_options::none, error);
    if (error)
      return absl::UnavailableError(fmt::format("{}: {}", (target / name).string(), error.message()));
  }
  return absl::OkStatus();
}

absl::Status MakeTarget(const std::string& target) {
  std::error_code error;
  if (fs::exists(target, error) && !fs::is_empty(target, error)) {
    return absl::AlreadyExistsError(fmt::format("{}: is there already; name a new folder", target));
  }
  fs::create_directories(target, error);
  if (error) return absl::UnavailableError(fmt::format("{}: {}", target, error.message()));
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteQuantized(const QuantizeOptions& options) {
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(options.source));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, QuantizationConfig::Load(options.source));
  if (stored.method != QuantizationConfig::Method::kNone) {
    return absl::InvalidArgumentError(fmt::format("{}: is quantized already ({}): start from the original",
                                                  options.source, stored.Describe()));
  }
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.source));
  BATON_RETURN_IF_ERROR(CheckWeights(options.source, checkpoint, config, stored));

  std::vector<PlannedMatrix> matrices;
  std::set<std::string> converted;
  int64_t all = 0, done = 0;
  for (const MatrixShape& shape : MatricesOf(checkpoint, config)) {
    const WeightPrecision precision = PrecisionOf(options.precision, shape.name);
    if (precision == WeightPrecision::kInt4 && shape.cols % kLatticeGroup != 0) {
      return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\": {} columns are no whole groups of {}",
                                                    options.source, shape.name, shape.cols, kLatticeGroup));
    }
    matrices.push_back({shape, precision, shape.name.substr(0, shape.name.size() - std::strlen(kWeight))});
    converted.insert(shape.name);
    all += shape.rows * shape.cols;
  }
  BATON_RETURN_IF_ERROR(MakeTarget(options.target));

  OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t at = 0;
  const auto announce = [&](const TensorEntry& entry) {
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {at, at + entry.bytes}}};
    at += entry.bytes;
  };
  for (const PlannedMatrix& matrix : matrices) {
    for (const TensorEntry& entry : EntriesOf(matrix)) announce(entry);
  }
  std::vector<const StoredTensor*> kept;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    // A tied model may carry its embedding a second time, under the head's name.
    if (converted.contains(name) || tensor->shape.size() == 2) continue;
    kept.push_back(tensor);
    std::string type = tensor->TypeName();
    for (char& letter : type) letter = static_cast<char>(std::toupper(letter));
    announce({name, type, tensor->shape, std::ssize(tensor->bytes)});
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  OutputFile file(options.target + "/model.safetensors");
  BATON_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&length, 1))));
  BATON_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  Quantizer quantizer(options.precision, options.threads);
  for (const PlannedMatrix& matrix : matrices) {
    const StoredTensor& tensor = *checkpoint.Find(matrix.shape.name);
    const auto [name, rows, cols] = matrix.shape;
    const absl::StatusOr<ConvertedMatrix> made = quantizer.Convert(
        name, {.data = tensor.bytes.data(), .dtype = tensor.dtype, .rows = rows, .cols = cols}, {0, cols});
    if (!made.ok()) {
      return absl::Status(made.status().code(), fmt::format("{}: tensor \"{}\": {}", options.source, name,
                                                            std::string(made.status().message())));
    }
    BATON_RETURN_IF_ERROR(file.Write(BytesOf(matrix, *made)));
    done += rows * cols;
    options.progress(done, all);
  }
  for (const StoredTensor* tensor : kept) BATON_RETURN_IF_ERROR(file.Write(tensor->bytes));
  BATON_RETURN_IF_ERROR(file.Close());

  BATON_RETURN_IF_ERROR(CopyOthers(options.source, options.target));
  const std::string source_config = options.source + "/config.json";
  BATON_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(source_config, kMostConfigBytes));
  OrderedJson changed = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!changed.is_object()) return absl::InvalidArgumentError(source_config + ": is not a JSON object");
  changed["quantization_config"] = ConfigOf(matrices);
  const std::string dumped = changed.dump(2) + "\n";
  OutputFile config_file(options.target + "/config.json");
  BATON_RETURN_IF_ERROR(config_file.Write(std::as_bytes(std::span(dumped))));
  return config_file.Close();
}

}  // namespace baton::model
