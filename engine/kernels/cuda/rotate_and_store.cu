// RMS norm of each head of Q and K (Qwen3), rotary embedding (arXiv 2104.09864), and the writing of K and V
// into paged blocks, in one pass over qkv. A warp takes one head of one row: lane l holds the pairs
// (i, i + half) with i = l, l + 32, ... Float32 in between; what is stored is rounded once.
#include "engine/kernels/cuda/device_math.cuh"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxPairs = 4;  // per lane: heads of up to 256

struct Norms {
  const float* q;
  const float* k;
  float eps;
};

struct Angles {
  const float* cos;
  const float* sin;
};

__device__ float WarpMax(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  }
  return value;
}

__device__ void Put(std::byte* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(data)[index] = value;
      return;
    case DType::kBF16:
      reinterpret_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
      return;
    case DType::kF16:
      reinterpret_cast<__half*>(data)[index] = __float2half_rn(value);
      return;
    case DType::kF8:
      reinterpret_cast<__nv_fp8_storage_t*>(data)[index] =
          __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      return;
    case DType::kI8:
      reinterpret_cast<int8_t*>(data)[index] = static_cast<int8_t>(__float2int_rn(value));
      return;
    case DType::kI4:  // refused by CudaKernels::CheckLayout
      return;
  }
}

// Stores a head's `low` (first half) and `high` values; value d goes to index d * step + first. Scaled dtypes
// get the token's scale first: the largest magnitude becomes the dtype's largest number.
__device__ void StoreHead(std::byte* data, DType dtype, const float* low, const float* high, int half,
                          int lane, int token, int64_t step, int64_t first) {
  float inverse = 1;
  if (tensor::IsScaled(dtype)) {
    float largest = 0;
#pragma unroll
    for (int n = 0; n < kMaxPairs; ++n) {
      if (lane + n * kWarp < half) largest = fmaxf(largest, fmaxf(fabsf(low[n]), fabsf(high[n])));
    }
    const float scale = WarpMax(largest) / tensor::LargestOf(dtype);
    inverse = scale > 0 ? 1 / scale : 0;
    if (lane == 0) reinterpret_cast<float*>(data + 2 * half * kBlockTokens)[token] = scale;  // one byte each
  }
#pragma unroll
  for (int n = 0; n < kMaxPairs; ++n) {
    const int d = lane + n * kWarp;
    if (d >= half) break;
    Put(data, dtype, d * step + first, low[n] * inverse);
    Put(data, dtype, (d + half) * step + first, high[n] * inverse);
  }
}

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp)
    RotateAndStoreKernel(T* qkv, int64_t stride, HeadShape shape, Norms norms, Angles angles, StepView step,
                         KvView kv) {
  const int row = static_cast<int>(blockIdx.x);
  const int unit = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int position = step.positions[row];
  if (position < 0 || unit >= shape.heads + 2 * shape.kv_heads) return;
  const bool is_q = unit < shape.heads;
  const bool is_v = unit >= shape.heads + shape.kv_heads;
  const int half = shape.head_dim / 2;
  T* x = qkv + row * stride + static_cast<int64_t>(unit) * shape.head_dim;

  float low[kMaxPairs] = {}, high[kMaxPairs] = {};
#pragma unroll
  for (int n = 0; n < kMaxPairs; ++n) {
    const int i = lane + n * kWarp;
    if (i >= half) break;
    low[n] = ToFloat(x[i]);
    high[n] = ToFloat(x[i + half]);
  }
  if (!is_v) {
    const float* weight = is_q ? norms.q : norms.k;
    if (weight != nullptr) {
      float squares = 0;
#pragma unroll
      for (int n = 0; n < kMaxPairs; ++n) squares += low[n] * low[n] + high[n] * high[n];
      const float factor = rsqrtf(WarpSum(squares) / static_cast<float>(shape.head_dim) + norms.eps);
#pragma unroll
      for (int n = 0; n < kMaxPairs; ++n) {
        const int i = lane + n * kWarp;
        if (i >= half) break;
        low[n] *= factor * weight[i];
        high[n] *= factor * weight[i + half];
      }
    }
    const float* cos = angles.cos + static_cast<int64_t>(position) * half;
    const float* sin = angles.sin + static_cast<int64_t>(position) * half;
#pragma unroll
    for (int n = 0; n < kMaxPairs; ++n) {
      const int i = lane + n * kWarp;
      if (i >= half) break;
      const float a = low[n], b = high[n];
      low[n] = a * cos[i] - b * sin[i];
      high[n] = b * cos[i] + a * sin[i];
      if (is_q) {
        x[i] = FromFloat<T>(low[n]);
        x[i + half] = FromFloat<T>(high[n]);
      }
    }
  }
  if (is_q) return;
  const int32_t block = step.blocks[step.row_blocks[row] + position / kBlockTokens];
  const int token = position % kBlockTokens;
  std::byte* base = kv.pool + block * kv.block_bytes;
  if (is_v) {
    const int head = unit - shape.heads - shape.kv_heads;
    StoreHead(base + kv.values_at + head * kv.value_head_bytes, kv.value_dtype, low, high, half, lane, token,
              1, static_cast<int64_t>(token) * shape.head_dim);
  } else {
    const int head = unit - shape.heads;
    StoreHead(base + kv.keys_at + head * kv.key_head_bytes, kv.key_dtype, low, high, half, lane, token,
              kBlockTokens, token);
  }
}

}  // namespace

void RotateAndStore(void* qkv, int64_t stride, DType dtype, const HeadShape& shape, const float* q_norm,
                    const float* k_norm, float eps, const float* cos, const float* sin, const StepView& step,
                    const KvView& kv, cudaStream_t stream) {
  if (step.rows == 0) return;
  const int units = shape.heads + 2 * shape.kv_heads;
  const dim3 grid(static_cast<unsigned>(step.rows), static_cast<unsigned>((units + kWarps - 1) / kWarps));
  const Norms norms{q_norm, k_norm, eps};
  const Angles angles{cos, sin};
  if (dtype == DType::kBF16) {
    RotateAndStoreKernel<<<grid, kWarps * kWarp, 0, stream>>>(static_cast<__nv_bfloat16*>(qkv), stride, shape,
                                                              norms, angles, step, kv);
  } else {
    RotateAndStoreKernel<<<grid, kWarps * kWarp, 0, stream>>>(static_cast<__half*>(qkv), stride, shape, norms,
                                                              angles, step, kv);
  }
  CheckLaunch("rotate and store");
}

}  // namespace baton::kernels::cuda
