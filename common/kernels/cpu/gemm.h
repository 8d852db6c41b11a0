// The matrix product out = x * w^T + bias, one panel of w at a time.
//
// out[m][n] is one chain of fused multiply-adds over k = 0, 1, ... that begins with the bias, in a lane of
// its own. Nothing is summed up across lanes, threads or blocks of k, so its bits depend on row m of x alone;
// blocking over rows, columns and k changes where the running sum is kept and not its value.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/isa.h"

namespace baton::kernels::cpu {

// Rows of x against one panel.
struct PanelProduct {
  const float* x;  // [rows][x_stride], the first `depth` of each row count
  int64_t x_stride;
  int64_t rows;
  int64_t depth;
  const void* panel;  // see panels.h
  const float* bias;  // [width], or null
  float* out;         // [rows][out_stride], the first `width` of each row are written
  int64_t out_stride;
  int width;  // rows of the panel that the matrix has: 1..64
};

struct GemmTable {
  void (*f32)(const PanelProduct&);
  void (*bf16)(const PanelProduct&);
};

const GemmTable& GemmFor(Isa isa);

}  // namespace baton::kernels::cpu
