#include "engine/model/tensor_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace baton::model {

using kernels::PackedMatrix;
using kernels::WeightView;

namespace {

// Where the file has row `row` of a matrix whose heads are of `paired` rows.
int64_t PairedRow(int64_t row, int64_t paired) {
  const int64_t in_head = row % paired, half = paired / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

// The rows of whole heads, the halves of each one after the other.
ConvertedMatrix InHalves(ConvertedMatrix matrix, int64_t paired) {
  const auto reorder = [&](auto& all) {
    const auto was = all;
    const size_t size = all.size() / static_cast<size_t>(matrix.view.rows);
    for (int64_t r = 0; r < matrix.view.rows; ++r) {
      std::copy_n(was.data() + static_cast<size_t>(PairedRow(r, paired)) * size, size,
                  all.data() + static_cast<size_t>(r) * size);
    }
  };
  reorder(matrix.values);
  reorder(matrix.scales);
  reorder(matrix.factors);
  reorder(matrix.zeros);
  return matrix;
}

// The same in float32, in `memory`.
WeightView Widened(const WeightView& matrix, std::vector<std::byte>& memory) {
  const auto values = static_cast<size_t>(matrix.rows * matrix.cols);
  memory.resize(values * sizeof(float));
  const std::span<float> floats(reinterpret_cast<float*>(memory.data()), values);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const auto first = static_cast<size_t>(r * matrix.cols);
    kernels::ReadRow(matrix, r, floats.subspan(first, static_cast<size_t>(matrix.cols)));
  }
  return {.data = memory.data(), .dtype = tensor::DType::kF32, .rows = matrix.rows, .cols = matrix.cols};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedMatrix>> TensorLoader::Matrix(std::span<const TensorPart> parts,
                                                                   int64_t cols, Range own_cols,
                                                                   int64_t block) {
  ReadParts read;
  BATON_RETURN_IF_ERROR(ReadAll(parts, cols, own_cols, block, &read));
  if (kernels_ == nullptr) return nullptr;
  const auto transformed = [](const WeightView& view) { return !view.quantization.transform.none(); };
  const auto kept = [&](const WeightView& view) { return view.quantized() && !transformed(view); };
  if (own_folder_) {
    // They multiply one input, which has one transform.
    for (size_t i = 1; i < read.views.size(); ++i) {
      const WeightView &a = read.views.front(), &b = read.views[i];
      if (!a.quantized() || !b.quantized() ||
          kernels::SameTransform(a.quantization.transform, b.quantization.transform, own_cols.count)) {
        continue;
      }
      return Refused(parts[i].name,
                     absl::InvalidArgumentError(fmt::format(
                         "its columns are transformed unlike those of \"{}\": quantize the original again",
                         parts.front().name)));
    }
  } else if (std::ranges::any_of(read.views, transformed) && std::ranges::any_of(read.views, kept)) {
    // Beside integers that are kept as they are stored, the rest is made of the same columns.
    read = {};
    BATON_RETURN_IF_ERROR(ReadAll(parts, cols, own_cols, /*block=*/0, &read));
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> packed = kernels_->Pack(read.views);
  if (packed.ok()) return packed;
  return Refused(parts.front().name, packed.status());
}

absl::Status TensorLoader::Refused(const std::string& name, const absl::Status& status) const {
  return {status.code(), fmt::format("{}: tensor \"{}\": {}", folder_, name, std::string(status.message()))};
}

absl::Status TensorLoader::ReadAll(std::span<const TensorPart> parts, int64_t cols, Range own_cols,
                                   int64_t block, ReadParts* read) {
  for (const TensorPart& part : parts) {
    if (const auto names = quantized_.TensorsOf(part.name); !names.empty()) {
      taken_.insert(names.begin(), names.end());
      absl::StatusOr<ConvertedMatrix> made = Quantized(part, cols, own_cols, block);
      if (!made.ok()) return Refused(part.name, made.status());
      if (kernels_ != nullptr && part.paired != 0) *made = InHalves(*std::move(made), part.paired);
      if (kernels_ != nullptr) read->views.push_back(read->conversions.emplace_back(*std::move(made)).view);
      continue;
    }
    const int64_t shape[] = {part.rows, cols};
    BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Take(part.name, shape));
    if (kernels_ == nullptr) continue;
    const int64_t size = SizeOf(tensor->type);
    const std::byte* data = tensor->bytes.data() + part.own.begin * cols * size;
    if (part.paired != 0) {
      ConvertedMatrix rows;
      rows.values.assign(data, data + part.own.count * cols * size);
      rows.view.rows = part.own.count;
      data = read->copies.emplace_back(InHalves(std::move(rows), part.paired).values).data();
    }
    if (quantizer_ != nullptr && quantizer_->Changes(tensor->dtype(), part.name)) {
      absl::StatusOr<ConvertedMatrix> made = quantizer_->Convert(
          part.name, {.data = data, .dtype = tensor->dtype(), .rows = part.own.count, .cols = cols}, own_cols,
          block);
      if (!made.ok()) return Refused(part.name, made.status());
      read->views.push_back(read->conversions.emplace_back(*std::move(made)).view);
      converted_ = true;
      continue;
    }
    if (own_cols.count != cols) {
      std::vector<std::byte>& cut = read->copies.emplace_back();
      cut.reserve(static_cast<size_t>(part.own.count * own_cols.count * size));
      for (int64_t r = 0; r < part.own.count; ++r) {
        const std::byte* begin = data + (r * cols + own_cols.begin) * size;
        cut.insert(cut.end(), begin, begin + own_cols.count * size);
      }
      data = cut.data();
    } else if (reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size) != 0) {
      data = read->copies.emplace_back(data, data + part.own.count * cols * size).data();
    }
    const WeightView view = {
        .data = data, .dtype = tensor->dtype(), .rows = part.own.count, .cols = own_cols.count};
    read->views.push_back(IsRouter(part.name) && view.dtype != tensor::DType::kF32
                              ? Widened(view, read->copies.emplace_back())
                              : view);
  }
  return absl::OkStatus();
}

absl::StatusOr<ConvertedMatrix> TensorLoader::Quantized(const TensorPart& part, int64_t cols, Range own_cols,
                                                        int64_t block) {
  const Range own = kernels_ != nullptr ? part.own : Range{0, 0};
  BATON_ASSIGN_OR_RETURN(ConvertedMatrix whole, quantized_.Read(part.name, part.rows, cols, own, block));
  if (kernels_ == nullptr) return whole;
  const WeightPrecision wanted =
      quantizer_ == nullptr ? WeightPrecision::kStored : PrecisionFor(quantizer_->precision(), part.name);
  const bool kept = whole.view.quantized()
                        ? wanted == PrecisionOf(whole.view)
                        : quantizer_ == nullptr || !quantizer_->Changes(whole.view.dtype, part.name);
  if (wanted == WeightPrecision::kStored || kept) {
    BATON_RETURN_IF_ERROR(
        CheckBlocks(PrecisionOf(whole.view), cols, own_cols, whole.view.quantization.transform.block));
    return Columns(std::move(whole), own_cols);
  }
  converted_ = true;
  return quantizer_->Convert(part.name, whole.view, own_cols, block);
}

absl::StatusOr<kernels::Values> TensorLoader::Ones(int64_t count) const {
  if (kernels_ == nullptr) return kernels::Values();
  return kernels::Values::Place(std::vector<float>(static_cast<size_t>(count), 1), kernels_->memory());
}

absl::StatusOr<kernels::Values> TensorLoader::Vector(std::span<const TensorPart> parts, double divisor,
                                                     bool product) {
  std::vector<float> values;
  for (const TensorPart& part : parts) {
    if (const auto names = fused_.TensorsOf(part.name); !names.empty()) {
      taken_.insert(names.begin(), names.end());
      const absl::StatusOr<std::vector<float>> bias =
          fused_.ReadBias(part.name, part.rows, kernels_ != nullptr ? part.own : Range{0, 0});
      if (!bias.ok()) {
        return absl::Status(bias.status().code(),
                            fmt::format("{}: {}", folder_, std::string(bias.status().message())));
      }
      values.insert(values.end(), bias->begin(), bias->end());
      continue;
    }
    const int64_t shape[] = {part.rows};
    BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Take(part.name, shape));
    if (kernels_ == nullptr) continue;
    const bool factor = product && !values.empty();
    for (int64_t i = 0; i < part.own.count; ++i) {
      const int64_t row = part.own.begin + i;
      const int64_t at = part.paired != 0 ? PairedRow(row, part.paired) : tensor->FileRow(row);
      const float value = tensor::ValueAt(tensor->bytes.data(), tensor->dtype(), at);
      if (factor) {
        values[static_cast<size_t>(i)] *= value;
      } else {
        values.push_back(value);
      }
    }
  }
  if (kernels_ == nullptr) return kernels::Values();
  if (divisor != 1) {
    for (float& value : values) value = static_cast<float>(value / divisor);
  }
  return kernels::Values::Place(std::move(values), kernels_->memory());
}

absl::Status TensorLoader::TiedHead(const std::string& head, const std::string& embedding) {
  for (const auto& [name, copy] : checkpoint_.tensors()) {
    if (!name.starts_with(head)) continue;
    const std::string original_name = embedding + name.substr(head.size());
    const StoredTensor* original = checkpoint_.Find(original_name);
    if (original == nullptr) continue;
    taken_.insert(name);
    if (copy->type != original->type || copy->shape != original->shape ||
        !std::ranges::equal(copy->bytes, original->bytes)) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: tie_word_embeddings is true, but \"{}\" differs from \"{}\"", folder_, name, original_name));
    }
  }
  return absl::OkStatus();
}

absl::Status TensorLoader::NothingLeft(const ModelConfig& config) const {
  const auto extra = [&config](std::string_view name) {
    for (int l = config.layers; l < config.layers + config.extra_layers; ++l) {
      if (name.starts_with(fmt::format("model.layers.{}.", l))) return true;
    }
    return false;
  };
  const auto image = [&config](std::string_view name) {
    if (!config.images_left_out) return false;
    if (name.starts_with("model.")) name.remove_prefix(6);
    return name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.");
  };
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    const bool known = taken_.contains(name) || name.ends_with(".rotary_emb.inv_freq");
    if (known || extra(name) || image(name)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}: tensor \"{}\" {} is not known to {} with this config.json", folder_, name,
                    ShapeText(tensor->shape), config.architecture));
  }
  return absl::OkStatus();
}

absl::StatusOr<const StoredTensor*> TensorLoader::Take(const std::string& name,
                                                       std::span<const int64_t> shape) {
  const StoredTensor* tensor = checkpoint_.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{}: tensor \"{}\" {} is missing", folder_, name, ShapeText(shape)));
  }
  if (!std::ranges::equal(tensor->shape, shape)) {
    return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" has shape {}, config.json asks for {}",
                                                  folder_, name, ShapeText(tensor->shape), ShapeText(shape)));
  }
  if (tensor->type == StoredType::kBlocks) {
    return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" is stored as {}: only matrices may be",
                                                  folder_, name, tensor->TypeName()));
  }
  if (!IsFloat(tensor->type)) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: tensor \"{}\" is stored as {}, and config.json has no quantization_config that says what "
        "that stands for",
        folder_, name, tensor->TypeName()));
  }
  taken_.insert(name);
  return tensor;
}

}  // namespace baton::model
