#include "engine/model/stored_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"
#include "engine/model/column_exponents.h"
#include "engine/model/lattice.h"

namespace baton::model {
namespace {

using tensor::DType;
using Shape = std::vector<int64_t>;

constexpr std::optional<StoredType> kFloats;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint32_t WordAt(const StoredTensor& tensor, int64_t i) {
  uint32_t word;
  std::memcpy(&word, tensor.bytes.data() + i * 4, sizeof word);
  return word;
}

float FloatAt(const StoredTensor& tensor, int64_t i) {
  return tensor::ValueAt(tensor.bytes.data(), tensor.dtype(), i);
}

// The tensors of one matrix, whose names begin with `prefix` ("model.layers.0.mlp.up_proj.").
struct MatrixSource {
  const Checkpoint& checkpoint;
  std::string prefix;
  int64_t rows, cols;

  const StoredTensor* Find(std::string_view name) const {
    return checkpoint.Find(prefix + std::string(name));
  }
  // One that has to be there, with one of these shapes; of this type, or kFloats.
  absl::StatusOr<const StoredTensor*> Need(std::string_view name, std::optional<StoredType> type,
                                           const std::vector<Shape>& shapes) const {
    const StoredTensor* const tensor = Find(name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}{}\" {} is missing, which its quantization needs", prefix, name,
                      ShapeText(shapes.front())));
    }
    if (type.has_value() ? tensor->type != *type : !IsFloat(tensor->type)) {
      return absl::InvalidArgumentError(fmt::format(
          "tensor \"{}{}\" is stored as {}, which is not known there", prefix, name, tensor->TypeName()));
    }
    if (std::ranges::find(shapes, tensor->shape) == shapes.end()) {
      return absl::InvalidArgumentError(fmt::format("tensor \"{}{}\" has shape {}, not {}", prefix, name,
                                                    ShapeText(tensor->shape), ShapeText(shapes.front())));
    }
    return tensor;
  }
};

ConvertedMatrix Floats(int64_t rows, int64_t cols) {
  ConvertedMatrix out;
  out.values.resize(static_cast<size_t>(rows * cols) * sizeof(float));
  out.view = {.data = out.values.data(), .dtype = DType::kF32, .rows = rows, .cols = cols};
  return out;
}

// The number at a row and a column of the whole matrix becomes one of `own`.
template <typename Number>
ConvertedMatrix FloatsOf(const MatrixSource& source, Range own, const Number& number) {
  ConvertedMatrix out = Floats(own.count, source.cols);
  auto* to = reinterpret_cast<float*>(out.values.data());
  for (int64_t r = own.begin; r < own.begin + own.count; ++r) {
    for (int64_t c = 0; c < source.cols; ++c) *to++ = number(r, c);
  }
  return out;
}

// Where a scale of [], [1], [rows, 1], [rows, groups] or blocks applies.
struct Scales {
  const StoredTensor* tensor;
  int64_t row_step, col_step, stride;
  int64_t IndexOf(int64_t r, int64_t c) const { return r / row_step * stride + c / col_step; }
  float At(int64_t r, int64_t c) const { return FloatAt(*tensor, IndexOf(r, c)); }
  // One for a whole row.
  bool ByRow(int64_t cols) const { return col_step >= cols; }
};

absl::StatusOr<Scales> ReadScales(const MatrixSource& source, std::string_view name, int64_t block_rows,
                                  int64_t block_cols) {
  const StoredTensor* const found = source.Find(name);
  const int64_t rows = source.rows, cols = source.cols;
  if (block_rows > 0) {
    const int64_t across = CeilDiv(cols, block_cols);
    BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor,
                           source.Need(name, kFloats, {{CeilDiv(rows, block_rows), across}}));
    return Scales{tensor, block_rows, block_cols, across};
  }
  if (found != nullptr && found->shape.size() == 2 && found->shape[0] == rows && found->shape[1] > 1) {
    const int64_t groups = found->shape[1];
    BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, source.Need(name, kFloats, {{rows, groups}}));
    if (cols % groups != 0) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}{}\" has {} groups, which do not divide {} columns", source.prefix, name,
                      groups, cols));
    }
    return Scales{tensor, 1, cols / groups, groups};
  }
  BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor,
                         source.Need(name, kFloats, {{rows, 1}, {rows}, {1}, {}, {1, 1}}));
  const bool one = tensor->bytes.size() == static_cast<size_t>(SizeOf(tensor->type));
  return Scales{tensor, one ? rows : 1, cols, 1};
}

// compressed-tensors' int-quantized: `weight` int8, a scale per tensor, row or group, maybe a zero.
absl::StatusOr<ConvertedMatrix> ReadInt8(const MatrixSource& source, Range own) {
  BATON_ASSIGN_OR_RETURN(const StoredTensor* weight,
                         source.Need("weight", StoredType::kI8, {{source.rows, source.cols}}));
  BATON_ASSIGN_OR_RETURN(const Scales scales, ReadScales(source, "weight_scale", 0, 0));
  const StoredTensor* zeros = source.Find("weight_zero_point");
  if (zeros != nullptr) {
    BATON_ASSIGN_OR_RETURN(zeros, source.Need("weight_zero_point", StoredType::kI8, {scales.tensor->shape}));
  }
  const auto* values = reinterpret_cast<const int8_t*>(weight->bytes.data());
  if (zeros == nullptr && scales.ByRow(source.cols)) {
    ConvertedMatrix out;
    const std::byte* const begin = weight->bytes.data() + own.begin * source.cols;
    out.values.assign(begin, begin + own.count * source.cols);
    for (int64_t r = own.begin; r < own.begin + own.count; ++r) out.scales.push_back(scales.At(r, 0));
    out.view = {.data = out.values.data(),
                .dtype = DType::kI8,
                .rows = own.count,
                .cols = source.cols,
                .quantization = {.bits = 8, .group = source.cols, .scales = out.scales.data()}};
    return out;
  }
  return FloatsOf(source, own, [&](int64_t r, int64_t c) {
    const int zero =
        zeros == nullptr ? 0 : static_cast<int8_t>(zeros->bytes[static_cast<size_t>(scales.IndexOf(r, c))]);
    return scales.At(r, c) * static_cast<float>(values[r * source.cols + c] - zero);
  });
}

// The rows `own` of 4-bit values in groups of the lattice's size, packed in words along the columns, as they
// are, if their scales and ranges are those of the lattice. Zeros and scales are functions of a row and a
// column.
template <typename Zero, typename Scale>
std::optional<ConvertedMatrix> LatticeRows(const MatrixSource& source, Range own, const StoredTensor& words,
                                           const Zero& zero_at, const Scale& scale_at) {
  const int64_t groups = source.cols / kLatticeGroup, row_bytes = source.cols / 2;
  ConvertedMatrix out;
  out.factors.resize(static_cast<size_t>(own.count * groups));
  std::vector<float> scales(static_cast<size_t>(groups));
  for (int64_t r = 0; r < own.count; ++r) {
    const int64_t row = own.begin + r;
    for (int64_t g = 0; g < groups; ++g) scales[static_cast<size_t>(g)] = scale_at(row, g * kLatticeGroup);
    const std::span<uint8_t> factors(out.factors.data() + r * groups, static_cast<size_t>(groups));
    const std::optional<float> scale = LatticeOf(scales, factors);
    if (!scale.has_value()) return std::nullopt;
    out.scales.push_back(*scale);
    // Eight values of a word, the lowest bits first, are two of each byte, the lower half first.
    const std::byte* const halves = words.bytes.data() + row * words.shape[1] * 4;
    out.values.insert(out.values.end(), halves, halves + row_bytes);
    for (int64_t g = 0; g < groups; ++g) {
      const int zero = zero_at(row, g * kLatticeGroup), factor = factors[static_cast<size_t>(g)];
      out.zeros.push_back(static_cast<uint8_t>(zero));
      if (factor * std::max(zero, 15 - zero) <= 127) continue;
      for (int64_t i = g * kLatticeGroup / 2; i < (g + 1) * kLatticeGroup / 2; ++i) {
        const int both = std::to_integer<int>(halves[i]);
        for (const int value : {both & 15, both >> 4}) {
          if (std::abs(factor * (value - zero)) > 127) return std::nullopt;
        }
      }
    }
  }
  out.view = {.data = out.values.data(),
              .dtype = DType::kI8,
              .rows = own.count,
              .cols = source.cols,
              .quantization = {.bits = 4,
                               .group = kLatticeGroup,
                               .scales = out.scales.data(),
                               .zeros = out.zeros.data(),
                               .factors = out.factors.data()}};
  return out;
}

// Packed values, zeros and scales, each a function of a row and a column, as numbers.
template <typename Value, typename Zero, typename Scale>
ConvertedMatrix PackedFloats(const MatrixSource& source, Range own, const Value& value_at,
                             const Zero& zero_at, const Scale& scale_at) {
  return FloatsOf(source, own, [&](int64_t r, int64_t c) {
    return scale_at(r, c) * static_cast<float>(value_at(r, c) - zero_at(r, c));
  });
}

// Field `i` of `bits` bits, counted from the lowest, of a stream of words.
int FieldAt(const StoredTensor& tensor, int64_t word, int64_t i, int bits) {
  return static_cast<int>(WordAt(tensor, word) >> (i * bits)) & ((1 << bits) - 1);
}

// The group of each column as a tensor has it: checked. -1s, as where no order was kept: nothing.
absl::StatusOr<std::vector<int64_t>> ReadGroupIndex(const MatrixSource& source, std::string_view name,
                                                    int64_t groups) {
  std::vector<int64_t> index;
  if (source.Find(name) == nullptr) return index;
  BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, source.Need(name, StoredType::kI32, {{source.cols}}));
  for (int64_t c = 0; c < source.cols; ++c) {
    const auto group = static_cast<int32_t>(WordAt(*tensor, c));
    if (group == -1 && index.empty()) return index;
    if (group < 0 || group >= groups) {
      return absl::InvalidArgumentError(fmt::format("tensor \"{}{}\" has group {} of {} for column {}",
                                                    source.prefix, name, group, groups, c));
    }
    index.push_back(group);
  }
  return index;
}

// compressed-tensors' pack-quantized: values and zeros offset to be unsigned, packed along columns and rows.
absl::StatusOr<ConvertedMatrix> ReadPacked(const MatrixSource& source, Range own) {
  const int64_t rows = source.rows, cols = source.cols;
  BATON_ASSIGN_OR_RETURN(
      const StoredTensor* words,
      source.Need("weight_packed", StoredType::kI32, {{rows, CeilDiv(cols, 8)}, {rows, CeilDiv(cols, 4)}}));
  const int bits = words->shape[1] == CeilDiv(cols, 8) ? 4 : 8;
  const int64_t per_word = 32 / bits, row_words = words->shape[1];
  if (const StoredTensor* const shape = source.Find("weight_shape"); shape != nullptr) {
    if (shape->type != StoredType::kI64 || shape->bytes.size() != 16) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}weight_shape\" is not two int64", source.prefix));
    }
    std::array<int64_t, 2> stated;
    std::memcpy(stated.data(), shape->bytes.data(), sizeof stated);
    if (stated != std::array{rows, cols}) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}weight_shape\" says {}, config.json asks for {}", source.prefix,
                      ShapeText(stated), ShapeText(Shape{rows, cols})));
    }
  }
  BATON_ASSIGN_OR_RETURN(const Scales scales, ReadScales(source, "weight_scale", 0, 0));
  const int64_t groups = scales.stride;
  BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> order, ReadGroupIndex(source, "weight_g_idx", groups));
  const StoredTensor* zeros = source.Find("weight_zero_point");
  if (zeros != nullptr) {
    BATON_ASSIGN_OR_RETURN(
        zeros, source.Need("weight_zero_point", StoredType::kI32, {{CeilDiv(rows, per_word), groups}}));
  }
  const auto group = [&](int64_t c) {
    return order.empty() ? c / scales.col_step : order[static_cast<size_t>(c)];
  };
  const auto value = [&](int64_t r, int64_t c) {
    return FieldAt(*words, r * row_words + c / per_word, c % per_word, bits);
  };
  const auto zero = [&](int64_t r, int64_t c) {
    return zeros == nullptr ? 1 << (bits - 1)
                            : FieldAt(*zeros, r / per_word * groups + group(c), r % per_word, bits);
  };
  const auto scale = [&](int64_t r, int64_t c) {
    return FloatAt(*scales.tensor, r / scales.row_step * groups + group(c));
  };
  if (bits == 4 && order.empty() && scales.col_step == kLatticeGroup) {
    std::optional<ConvertedMatrix> lattice = LatticeRows(source, own, *words, zero, scale);
    if (lattice.has_value()) return *std::move(lattice);
  }
  return PackedFloats(source, own, value, zero, scale);
}

// Baton's own: the tensors of compressed-tensors, of transformed columns, and the exponents of these in
// blocks of columns that are transformed together.
absl::StatusOr<ConvertedMatrix> ReadTransformed(const MatrixSource& source, Range own, int64_t block) {
  const bool bytes = source.Find("weight") != nullptr, packed = source.Find("weight_packed") != nullptr;
  if (bytes && packed) {
    return absl::InvalidArgumentError(
        fmt::format("there are both \"{0}weight\" and \"{0}weight_packed\"", source.prefix));
  }
  BATON_ASSIGN_OR_RETURN(ConvertedMatrix out, bytes ? ReadInt8(source, own) : ReadPacked(source, own));
  if (!out.view.quantized()) {
    return absl::InvalidArgumentError(
        fmt::format("tensors \"{}*\" are no {}: quantize the original again", source.prefix,
                    bytes ? "int8 with a scale per row" : "4 bits on the lattice of int8"));
  }
  BATON_CHECK(block >= 1 && source.cols % block == 0) << block;
  BATON_ASSIGN_OR_RETURN(const StoredTensor* exponents,
                         source.Need("weight_exponents", StoredType::kI8, {{source.cols / block, block}}));
  const auto* const of_columns = reinterpret_cast<const int8_t*>(exponents->bytes.data());
  bool any = false;
  for (int64_t c = 0; c < source.cols; ++c) {
    if (std::abs(of_columns[c]) > kMostExponent) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}weight_exponents\" has {} for column {}: at most {}", source.prefix,
                      of_columns[c], c, kMostExponent));
    }
    any |= of_columns[c] != 0;
  }
  out.view.quantization.transform = {.block = block, .exponents = any ? of_columns : nullptr};
  return out;
}

// GPTQ: words of consecutive columns, [cols / per word][rows]; zeros packed along rows.
absl::StatusOr<ConvertedMatrix> ReadGptq(const MatrixSource& source, Range own,
                                         const QuantizationConfig& config) {
  const int64_t rows = source.rows, cols = source.cols, per_word = 32 / config.bits;
  const int64_t size = config.group == 0 ? cols : config.group, groups = CeilDiv(cols, size);
  BATON_ASSIGN_OR_RETURN(const StoredTensor* words,
                         source.Need("qweight", StoredType::kI32, {{CeilDiv(cols, per_word), rows}}));
  BATON_ASSIGN_OR_RETURN(const StoredTensor* zeros,
                         source.Need("qzeros", StoredType::kI32, {{groups, CeilDiv(rows, per_word)}}));
  BATON_ASSIGN_OR_RETURN(const StoredTensor* scales, source.Need("scales", kFloats, {{groups, rows}}));
  BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> order, ReadGroupIndex(source, "g_idx", groups));
  const auto group = [&](int64_t c) { return order.empty() ? c / size : order[static_cast<size_t>(c)]; };
  const int mask = (1 << config.bits) - 1, more = config.zeros_less_one ? 1 : 0;
  return PackedFloats(
      source, own,
      [&](int64_t r, int64_t c) {
        return FieldAt(*words, c / per_word * rows + r, c % per_word, config.bits);
      },
      [&](int64_t r, int64_t c) {
        const int64_t word = group(c) * CeilDiv(rows, per_word) + r / per_word;
        // A field of all ones may stand for 0 or for 16, which files of zeros less one do not tell: 0.
        return (FieldAt(*zeros, word, r % per_word, config.bits) + more) & mask;
      },
      [&](int64_t r, int64_t c) { return FloatAt(*scales, group(c) * rows + r); });
}

// AutoAWQ's gemm: words of 8 rows, in the order of its kernels, [cols][rows / 8].
absl::StatusOr<ConvertedMatrix> ReadAwq(const MatrixSource& source, Range own,
                                        const QuantizationConfig& config) {
  static constexpr int kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of row 8i + j within its word
  const int64_t rows = source.rows, cols = source.cols, row_words = CeilDiv(rows, 8);
  const int64_t size = config.group == 0 ? cols : config.group, groups = CeilDiv(cols, size);
  BATON_ASSIGN_OR_RETURN(const StoredTensor* words,
                         source.Need("qweight", StoredType::kI32, {{cols, row_words}}));
  BATON_ASSIGN_OR_RETURN(const StoredTensor* zeros,
                         source.Need("qzeros", StoredType::kI32, {{groups, row_words}}));
  BATON_ASSIGN_OR_RETURN(const StoredTensor* scales, source.Need("scales", kFloats, {{groups, rows}}));
  return PackedFloats(
      source, own,
      [&](int64_t r, int64_t c) { return FieldAt(*words, c * row_words + r / 8, kPlaces[r % 8], 4); },
      [&](int64_t r, int64_t c) { return FieldAt(*zeros, c / size * row_words + r / 8, kPlaces[r % 8], 4); },
      [&](int64_t r, int64_t c) { return FloatAt(*scales, c / size * rows + r); });
}

absl::StatusOr<ConvertedMatrix> ReadFloat8(const MatrixSource& source, Range own,
                                           const QuantizationConfig& config) {
  const StoredTensor* const weight = source.Find("weight");
  if (weight->shape != Shape{source.rows, source.cols}) {
    return absl::InvalidArgumentError(fmt::format("tensor \"{}weight\" has shape {}, config.json asks for {}",
                                                  source.prefix, ShapeText(weight->shape),
                                                  ShapeText(Shape{source.rows, source.cols})));
  }
  const bool inverse = source.Find("weight_scale_inv") != nullptr;
  int64_t block_rows = config.block_rows, block_cols = config.block_cols;
  if (config.method == QuantizationConfig::Method::kCompressedTensors) {
    // Blocks of 128 x 128 where the scales have that shape; config.json has no other.
    const StoredTensor* const scale = source.Find("weight_scale");
    const Shape blocks = {CeilDiv(source.rows, 128), CeilDiv(source.cols, 128)};
    if (scale != nullptr && scale->shape == blocks && blocks[0] != source.rows && blocks != Shape{1, 1}) {
      block_rows = block_cols = 128;
    }
  }
  BATON_ASSIGN_OR_RETURN(
      const Scales scales,
      ReadScales(source, inverse ? "weight_scale_inv" : "weight_scale", block_rows, block_cols));
  return FloatsOf(source, own, [&](int64_t r, int64_t c) {
    return FloatAt(*weight, r * source.cols + c) * scales.At(r, c);
  });
}

// A tensor of a GGUF file whose rows are of blocks, or in another order.
absl::StatusOr<ConvertedMatrix> ReadGguf(const MatrixSource& source, Range own) {
  const StoredTensor& weight = *source.Find("weight");
  if (weight.shape != Shape{source.rows, source.cols}) {
    return absl::InvalidArgumentError(fmt::format("tensor \"{}weight\" has shape {}, its model asks for {}",
                                                  source.prefix, ShapeText(weight.shape),
                                                  ShapeText(Shape{source.rows, source.cols})));
  }
  const size_t row_bytes = weight.bytes.size() / static_cast<size_t>(source.rows);
  const auto row = [&](int64_t r) {
    return weight.bytes.subspan(static_cast<size_t>(weight.FileRow(r)) * row_bytes, row_bytes);
  };
  if (weight.type != StoredType::kBlocks) {
    ConvertedMatrix out;
    for (int64_t r = own.begin; r < own.begin + own.count; ++r) {
      const std::span<const std::byte> bytes = row(r);
      out.values.insert(out.values.end(), bytes.begin(), bytes.end());
    }
    out.view = {.data = out.values.data(), .dtype = weight.dtype(), .rows = own.count, .cols = source.cols};
    return out;
  }
  ConvertedMatrix out = Floats(own.count, source.cols);
  const std::span<float> numbers(reinterpret_cast<float*>(out.values.data()),
                                 static_cast<size_t>(own.count * source.cols));
  const auto cols = static_cast<size_t>(source.cols);
  for (int64_t r = 0; r < own.count; ++r) {
    gguf::ExpandRow(*weight.blocks, row(own.begin + r), numbers.subspan(static_cast<size_t>(r) * cols, cols));
  }
  return out;
}

// Tensors that may stand for a matrix, beside "weight".
constexpr std::string_view kCompanions[] = {"weight_packed",    "weight_scale",
                                            "weight_scale_inv", "weight_zero_point",
                                            "weight_shape",     "weight_g_idx",
                                            "input_scale",      "input_zero_point",
                                            "output_scale",     "activation_scale",
                                            "qweight",          "qzeros",
                                            "scales",           "g_idx"};
// The same in Baton's own folders.
constexpr std::string_view kOwnCompanions[] = {"weight_packed", "weight_scale", "weight_zero_point",
                                               "weight_shape", "weight_exponents"};

std::string PrefixOf(const std::string& name) {
  constexpr std::string_view kWeight = "weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name + ".";
}

}  // namespace

std::vector<std::string> MatrixReader::TensorsOf(const std::string& name) const {
  std::vector<std::string> names;
  if (names = fused_.TensorsOf(name); !names.empty()) return names;
  if (config_.method == QuantizationConfig::Method::kNone ||
      config_.method == QuantizationConfig::Method::kMxfp4) {
    return names;
  }
  const StoredTensor* const plain = checkpoint_.Find(name);
  if (config_.method == QuantizationConfig::Method::kGguf) {
    if (plain != nullptr && (plain->type == StoredType::kBlocks || plain->paired_heads != 0))
      names.push_back(name);
    return names;
  }
  if (plain != nullptr && IsFloat(plain->type)) return names;
  if (plain != nullptr) names.push_back(name);
  const bool own = config_.method == QuantizationConfig::Method::kBaton;
  for (const std::string_view companion : own ? std::span<const std::string_view>(kOwnCompanions)
                                              : std::span<const std::string_view>(kCompanions)) {
    std::string tensor = PrefixOf(name) + std::string(companion);
    if (checkpoint_.Find(tensor) != nullptr) names.push_back(std::move(tensor));
  }
  return names;
}

absl::StatusOr<ConvertedMatrix> MatrixReader::Read(const std::string& name, int64_t rows, int64_t cols,
                                                   Range own, int64_t block) const {
  if (!fused_.TensorsOf(name).empty()) return fused_.Read(name, rows, cols, own);
  const MatrixSource source = {checkpoint_, PrefixOf(name), rows, cols};
  if (config_.method == QuantizationConfig::Method::kGguf) return ReadGguf(source, own);
  if (config_.method == QuantizationConfig::Method::kBaton) return ReadTransformed(source, own, block);
  if (const StoredTensor* const weight = source.Find("weight"); weight != nullptr) {
    return weight->type == StoredType::kF8 ? ReadFloat8(source, own, config_) : ReadInt8(source, own);
  }
  switch (config_.method) {
    case QuantizationConfig::Method::kGptq:
      return ReadGptq(source, own, config_);
    case QuantizationConfig::Method::kAwq:
      return ReadAwq(source, own, config_);
    default:
      return ReadPacked(source, own);
  }
}

ConvertedMatrix Columns(ConvertedMatrix matrix, Range own) {
  const kernels::WeightView& from = matrix.view;
  if (own.begin == 0 && own.count == from.cols) return matrix;
  const kernels::Quantization& q = from.quantization;
  kernels::ColumnTransform transform = q.transform;
  BATON_CHECK(own.begin % transform.block == 0 && own.count % transform.block == 0) << transform.block;
  if (transform.exponents != nullptr) transform.exponents += own.begin;
  ConvertedMatrix out;
  out.scales = matrix.scales;
  out.view = from;
  out.view.cols = own.count;
  if (q.lattice() && own.begin % q.group == 0) {
    const int64_t groups = LatticeGroups(from.cols), kept = LatticeGroups(own.count),
                  first = own.begin / q.group;
    for (int64_t r = 0; r < from.rows; ++r) {
      const auto* row = matrix.values.data() + r * ((from.cols + 1) / 2) + own.begin / 2;
      out.values.insert(out.values.end(), row, row + (own.count + 1) / 2);
      const auto at = r * groups + first;
      out.factors.insert(out.factors.end(), q.factors + at, q.factors + at + kept);
      out.zeros.insert(out.zeros.end(), q.zeros + at, q.zeros + at + kept);
    }
    out.view.quantization.factors = out.factors.data();
    out.view.quantization.zeros = out.zeros.data();
  } else {
    const int64_t size = q.bits == 0 ? tensor::SizeOf(from.dtype) : 1;
    for (int64_t r = 0; r < from.rows; ++r) {
      if (q.lattice()) {
        for (int64_t c = 0; c < own.count; ++c)
          out.values.push_back(std::byte(kernels::IntegerAt(from, r, own.begin + c)));
      } else {
        const auto* row = matrix.values.data() + (r * from.cols + own.begin) * size;
        out.values.insert(out.values.end(), row, row + own.count * size);
      }
    }
    if (q.bits != 0) out.view.quantization = {.bits = 8, .group = own.count};
  }
  out.view.data = out.values.data();
  if (q.bits != 0) {
    out.view.quantization.scales = out.scales.data();
    out.view.quantization.transform = transform;
  }
  return out;
}

WeightPrecision PrecisionOf(const kernels::WeightView& view) {
  if (!view.quantized()) return WeightPrecision::kStored;
  return view.quantization.lattice() ? WeightPrecision::kInt4 : WeightPrecision::kInt8;
}

}  // namespace baton::model
