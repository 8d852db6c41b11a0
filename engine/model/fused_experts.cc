#include "engine/model/fused_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"

namespace baton::model {
namespace {

using tensor::DType;

constexpr int64_t kGroup = 32;  // values that share a scale
constexpr int64_t kGroupBytes = kGroup / 2;
constexpr int kNoNumber = 255;  // of the scales
// Columns that are read together of a matrix that is stored the other way round.
constexpr int64_t kTurned = 64;

// The place of one expert's matrix or bias in a fused tensor.
struct Place {
  std::string tensor;  // "model.layers.0.mlp.experts.gate_up_proj"
  int64_t expert = 0;
  int64_t first = 0, step = 1;  // output feature i is number first + i step of the tensor's
  bool bias = false;

  int64_t feature(int64_t i) const { return first + i * step; }
};

std::optional<Place> PlaceOf(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kExperts.size());
  const size_t dot = rest.find('.');
  Place place;
  if (dot == std::string_view::npos || !absl::SimpleAtoi(std::string(rest.substr(0, dot)), &place.expert)) {
    return std::nullopt;
  }
  struct Part {
    std::string_view name, tensor;
    int64_t first, step;
  };
  static constexpr Part kParts[] = {{"gate_proj.", "gate_up_proj", 0, 2},
                                    {"up_proj.", "gate_up_proj", 1, 2},
                                    {"down_proj.", "down_proj", 0, 1}};
  const std::string_view matrix = rest.substr(dot + 1);
  for (const Part& part : kParts) {
    if (!matrix.starts_with(part.name)) continue;
    const std::string_view kind = matrix.substr(part.name.size());
    if (kind != "weight" && kind != "bias") return std::nullopt;
    place.bias = kind == "bias";
    place.tensor =
        fmt::format("{}{}{}", name.substr(0, at + kExperts.size()), part.tensor, place.bias ? "_bias" : "");
    place.first = part.first;
    place.step = part.step;
    return place;
  }
  return std::nullopt;
}

// The 16 values of E2M1 with each scale, as bfloat16: value * 2^(scale - 127).
using ScaledValues = std::array<std::array<uint16_t, 16>, 256>;
const ScaledValues& Values() {
  static const ScaledValues all = [] {
    constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    ScaledValues values;
    for (int scale = 0; scale < 256; ++scale) {
      for (int code = 0; code < 16; ++code) {
        const float value = std::ldexp(kMagnitudes[code & 7], scale - 127);
        values[static_cast<size_t>(scale)][static_cast<size_t>(code)] =
            tensor::ToBF16(code < 8 ? value : -value);
      }
    }
    return values;
  }();
  return all;
}

ConvertedMatrix Empty(DType dtype, int64_t rows, int64_t cols) {
  ConvertedMatrix out;
  out.values.resize(static_cast<size_t>(rows * cols * tensor::SizeOf(dtype)));
  out.view = {.data = out.values.data(), .dtype = dtype, .rows = rows, .cols = cols};
  return out;
}

}  // namespace

std::vector<std::string> FusedExperts::TensorsOf(const std::string& name) const {
  if (experts_ == 0) return {};
  const std::optional<Place> place = PlaceOf(name);
  if (!place.has_value()) return {};
  if (place->bias || !mxfp4_ || checkpoint_.Find(place->tensor) != nullptr) return {place->tensor};
  return {place->tensor + "_blocks", place->tensor + "_scales"};
}

absl::StatusOr<const StoredTensor*> FusedExperts::Need(const std::string& name,
                                                       const std::vector<int64_t>& shape, bool bytes) const {
  const StoredTensor* const tensor = checkpoint_.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\" {} is missing{}", name, ShapeText(shape),
                    bytes || checkpoint_.Find(name + "_blocks") == nullptr
                        ? ""
                        : ": it is stored as MXFP4, which a quantization_config of config.json must say"));
  }
  if (tensor->shape != shape) {
    return absl::InvalidArgumentError(fmt::format("tensor \"{}\" has shape {}, config.json asks for {}", name,
                                                  ShapeText(tensor->shape), ShapeText(shape)));
  }
  if (bytes ? tensor->type != StoredType::kU8 : !IsFloat(tensor->type)) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\" is stored as {}, which is not known there", name, tensor->TypeName()));
  }
  return tensor;
}

absl::StatusOr<ConvertedMatrix> FusedExperts::Read(const std::string& name, int64_t rows, int64_t cols,
                                                   Range own) const {
  const Place place = *PlaceOf(name);
  const int64_t features = rows * place.step;
  if (!mxfp4_ || checkpoint_.Find(place.tensor) != nullptr) {
    BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Need(place.tensor, {experts_, cols, features}, false));
    ConvertedMatrix out = Empty(tensor->dtype(), own.count, cols);
    const auto size = static_cast<size_t>(SizeOf(tensor->type));
    const std::byte* const expert =
        tensor->bytes.data() + place.expert * cols * features * static_cast<int64_t>(size);
    for (int64_t begin = 0; begin < cols; begin += kTurned) {
      const int64_t end = std::min(cols, begin + kTurned);
      for (int64_t r = 0; r < own.count; ++r) {
        const int64_t feature = place.feature(own.begin + r);
        for (int64_t c = begin; c < end; ++c) {
          std::memcpy(out.values.data() + static_cast<size_t>(r * cols + c) * size,
                      expert + static_cast<size_t>(c * features + feature) * size, size);
        }
      }
    }
    return out;
  }
  if (cols % kGroup != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} columns are no whole groups of {}, which MXFP4 has", cols, kGroup));
  }
  const int64_t groups = cols / kGroup;
  BATON_ASSIGN_OR_RETURN(const StoredTensor* blocks,
                         Need(place.tensor + "_blocks", {experts_, features, groups, kGroupBytes}, true));
  BATON_ASSIGN_OR_RETURN(const StoredTensor* scales,
                         Need(place.tensor + "_scales", {experts_, features, groups}, true));
  ConvertedMatrix out = Empty(DType::kBF16, own.count, cols);
  std::byte* to = out.values.data();
  for (int64_t r = 0; r < own.count; ++r) {
    const int64_t first = (place.expert * features + place.feature(own.begin + r)) * groups;
    for (int64_t g = first; g < first + groups; ++g) {
      const auto scale = std::to_integer<size_t>(scales->bytes[static_cast<size_t>(g)]);
      if (scale == kNoNumber) {
        return absl::InvalidArgumentError(
            fmt::format("tensor \"{}_scales\" has a scale of 255, which is no number", place.tensor));
      }
      const std::array<uint16_t, 16>& values = Values()[scale];
      const std::byte* const from = blocks->bytes.data() + g * kGroupBytes;
      for (int64_t i = 0; i < kGroupBytes; ++i, to += 4) {
        const auto both = std::to_integer<size_t>(from[i]);
        const uint16_t pair[] = {values[both & 15], values[both >> 4]};
        std::memcpy(to, pair, sizeof pair);
      }
    }
  }
  return out;
}

absl::StatusOr<std::vector<float>> FusedExperts::ReadBias(const std::string& name, int64_t size,
                                                          Range own) const {
  const Place place = *PlaceOf(name);
  const int64_t features = size * place.step;
  BATON_ASSIGN_OR_RETURN(const StoredTensor* tensor, Need(place.tensor, {experts_, features}, false));
  std::vector<float> values;
  for (int64_t i = 0; i < own.count; ++i) {
    values.push_back(tensor::ValueAt(tensor->bytes.data(), tensor->dtype(),
                                     place.expert * features + place.feature(own.begin + i)));
  }
  return values;
}

}  // namespace baton::model
