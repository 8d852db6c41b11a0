// The operations on single rows: norms, rotary embedding, gated activation. Sums have 16 fixed parts (index
// mod 16) that are added in a fixed tree; everything else is done value by value.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/isa.h"

namespace baton::kernels::cpu {

struct ElementwiseTable {
  // out = x / sqrt(mean(x^2) + eps) * weight, all [n]. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // x += y, both [n].
  void (*add)(float* x, const float* y, int64_t n);
  // out = silu(gate) * up, all [n].
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  // out = g * sigmoid(slope g) * (u + 1), g = min(gate, limit), u = up within +-limit, all [n].
  void (*clamped_swiglu)(const float* gate, const float* up, float limit, float slope, int64_t n, float* out);
  // x += weight * y, both [n].
  void (*add_scaled)(float* x, float weight, const float* y, int64_t n);
  // out = exp(x - shift), all [n]. out may be x.
  void (*exponentials)(const float* x, float shift, int64_t n, float* out);
  // x [2 * half]: the pair (x[i], x[i + half]) turns by the angle of cos[i], sin[i].
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t half);
  // out = H(x * scales), all [n], of blocks as ColumnTransform has them. scales null: ones. out is not x.
  void (*hadamard)(const float* x, const float* scales, int64_t block, int64_t n, float* out);
};

const ElementwiseTable& ElementwiseFor(Isa isa);

}  // namespace baton::kernels::cpu
