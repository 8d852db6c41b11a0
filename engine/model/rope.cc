#include "engine/model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/status.h"

namespace baton::model {
namespace {

using std::numbers::pi;

// YaRN, section 3.4: the factor on attention for a context stretched by `factor`.
double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double YarnScale(const RopeScaling& rope) {
  if (rope.attention_factor != 0) return rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dim != 0) {
    return YarnMagnitude(rope.factor, rope.mscale) / YarnMagnitude(rope.factor, rope.mscale_all_dim);
  }
  return YarnMagnitude(rope.factor, 1);
}

// LongRoPE, section 3.3, of a context that is rope.factor times the original one.
double LongRopeScale(const RopeScaling& rope) {
  if (rope.attention_factor != 0) return rope.attention_factor;
  if (rope.factor <= 1) return 1;
  return std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_context)));
}

// YaRN, section 3.2: the dimension whose wave turns `rotations` times within the original context.
double YarnDimension(const ModelConfig& config, double rotations) {
  const auto original = static_cast<double>(config.rope_scaling.original_context);
  return config.rotary_dim * std::log(original / (rotations * 2 * pi)) / (2 * std::log(config.rope_theta));
}

void ScaleYarn(const ModelConfig& config, std::vector<double>& frequencies) {
  const RopeScaling& rope = config.rope_scaling;
  double low = YarnDimension(config, rope.beta_fast);
  double high = YarnDimension(config, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.rotary_dim - 1.0);
  if (low == high) high += 0.001;  // no division by zero; transformers does the same
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * slow + frequencies[i] * (1 - slow);
  }
}

void ScaleLlama3(const RopeScaling& rope, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(rope.original_context);
  for (double& frequency : frequencies) {
    const double wavelength = 2 * pi / frequency;
    if (wavelength < original / rope.high_freq_factor) continue;
    if (wavelength > original / rope.low_freq_factor) {
      frequency /= rope.factor;
      continue;
    }
    const double fast =
        (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    frequency = (1 - fast) * frequency / rope.factor + fast * frequency;
  }
}

}  // namespace

RopeFrequencies FrequenciesFor(const ModelConfig& config) {
  const RopeScaling& rope = config.rope_scaling;
  const double dim = config.rotary_dim;
  std::vector<double> frequencies(static_cast<size_t>(config.rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / dim);
  }
  RopeFrequencies result;
  switch (rope.type) {
    case RopeScaling::Type::kNone:
    case RopeScaling::Type::kDynamic:
      break;
    case RopeScaling::Type::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::Type::kYarn:
      ScaleYarn(config, frequencies);
      result.scale = static_cast<float>(YarnScale(rope));
      break;
    case RopeScaling::Type::kLlama3:
      ScaleLlama3(rope, frequencies);
      break;
    case RopeScaling::Type::kLongRope:
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= rope.factors[i];
      result.scale = static_cast<float>(LongRopeScale(rope));
      break;
  }
  result.inverse.assign(frequencies.begin(), frequencies.end());
  return result;
}

std::vector<bool> OtherLayers(const ModelConfig& config) {
  const bool same =
      config.window_theta == config.rope_theta && config.rope_scaling.type == RopeScaling::Type::kNone;
  if (config.window_theta == 0 || same) return config.unturned_layers;
  std::vector<bool> windowed;
  for (const int64_t window : config.windows) windowed.push_back(window > 0);
  return windowed;
}

int64_t RopeAngles::BytesFor(const ModelConfig& config) {
  const int64_t tables = OtherLayers(config).empty() ? 1 : 2;
  return config.context * (config.rotary_dim / 2) * int64_t{2 * sizeof(float)} * tables;
}

absl::Status RopeAngles::CheckSize(const ModelConfig& config, int64_t max_bytes) {
  if (BytesFor(config) > max_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("rope angles for a context of {} take more than {} bytes: lower max_position_embeddings "
                    "in config.json",
                    config.context, max_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeAngles> RopeAngles::Create(const ModelConfig& config, int64_t max_bytes) {
  BATON_RETURN_IF_ERROR(CheckSize(config, max_bytes));
  RopeAngles angles;
  angles.half_dim_ = config.rotary_dim / 2;
  const int64_t values = config.context * angles.half_dim_;
  const RopeFrequencies frequencies = FrequenciesFor(config);
  angles.cos_.resize(static_cast<size_t>(values));
  angles.sin_.resize(static_cast<size_t>(values));
  size_t out = 0;
  for (int64_t position = 0; position < config.context; ++position) {
    for (float inverse : frequencies.inverse) {
      // The angle is rounded to float32 as in transformers: at long contexts models are trained with that
      // rounding.
      const float angle = static_cast<float>(position) * inverse;
      angles.cos_[out] = static_cast<float>(std::cos(double{angle})) * frequencies.scale;
      angles.sin_[out] = static_cast<float>(std::sin(double{angle})) * frequencies.scale;
      ++out;
    }
  }
  return angles;
}

absl::StatusOr<RopeAngles> RopeAngles::Other(const ModelConfig& config) {
  if (config.window_theta != 0) {
    ModelConfig other = config;
    other.rope_theta = config.window_theta;
    other.rope_scaling = {};
    return Create(other);
  }
  RopeAngles angles;
  angles.half_dim_ = config.rotary_dim / 2;
  const auto values = static_cast<size_t>(config.context * angles.half_dim_);
  angles.cos_.assign(values, 1);
  angles.sin_.assign(values, 0);
  return angles;
}

}  // namespace baton::model
