// RopeAngles: the table of cosines and sines that rotary position embedding (arXiv 2104.09864) looks up, for
// every position of the model's context, with the scalings of Hugging Face's modeling_rope_utils. A
// position's angles never depend on how long a sequence grows: KV, once computed, stays right. Immutable, any
// thread.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kernels/kernels.h"
#include "text/config/config.h"

namespace baton::model {

// Angle per position of each pair of dimensions, [dim / 2] (dim: rotary_dim of the config), and the factor on
// cosines and sines (YaRN, LongRoPE; else 1).
//
//   none     f[i] = theta^(-2i / dim)
//   linear   f[i] / factor
//   dynamic  f[i]: transformers stretches theta only for sequences beyond max_position_embeddings, which are
//            refused here
//   yarn     arXiv 2309.00071: f[i] / factor for slow dimensions, f[i] for fast ones, a linear ramp between
//   longrope arXiv 2402.13753: f[i] / factors[i], and the magnitude of a context that is stretched
//   llama3   f[i] / factor for wavelengths above original / low_freq_factor,
//            f[i] for those below original / high_freq_factor, a linear blend between
struct RopeFrequencies {
  std::vector<float> inverse;
  float scale = 1;
};
RopeFrequencies FrequenciesFor(const ModelConfig& config);

// Layers that have a table of their own, [layers]: those that keep still (unturned_layers), or those with a
// window (window_theta). Empty: there are none.
std::vector<bool> OtherLayers(const ModelConfig& config);

class RopeAngles {
 public:
  static constexpr int64_t kMaxBytes = int64_t{4} << 30;

  // Bytes of the tables that a decoder holds: two where there are OtherLayers.
  static int64_t BytesFor(const ModelConfig& config);
  // RESOURCE_EXHAUSTED if the tables would take more than `max_bytes`.
  static absl::Status CheckSize(const ModelConfig& config, int64_t max_bytes = kMaxBytes);
  // Refuses what CheckSize does.
  static absl::StatusOr<RopeAngles> Create(const ModelConfig& config, int64_t max_bytes = kMaxBytes);

  // The table of OtherLayers. Layers that keep still have angles of 0 everywhere: a vector that is turned by
  // them has the bits that it had.
  static absl::StatusOr<RopeAngles> Other(const ModelConfig& config);

  // Lives as long as this.
  kernels::RopeTable table() const { return {cos_, sin_, half_dim_}; }
  // Gives the table away, for a backend to place it.
  std::vector<float> TakeCos() { return std::move(cos_); }
  std::vector<float> TakeSin() { return std::move(sin_); }
  int64_t bytes() const { return static_cast<int64_t>((cos_.size() + sin_.size()) * sizeof(float)); }

 private:
  int half_dim_ = 0;
  std::vector<float> cos_;  // [context][half_dim]
  std::vector<float> sin_;
};

}  // namespace baton::model
