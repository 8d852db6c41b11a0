// The operations that are bound by memory: each reads and writes every value once, in 16-byte accesses where
// rows allow it.
#include <algorithm>

#include "engine/kernels/cuda/device_math.cuh"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// kCount consecutive values, moved as one.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Run {
  T values[kCount];
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(const T* table, int64_t table_rows, const int32_t* tokens, const int32_t* drawn,
                int64_t first, int cols, float* out, int64_t out_stride) {
  const int64_t row = blockIdx.x;
  const int32_t word = tokens[row];
  const int64_t id = (word < -1 ? drawn[TakenWord(word)] : word) - first;
  const bool there = id >= 0 && id < table_rows;
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += kThreads) {
    out[row * out_stride + c] = there ? ToFloat(table[id * cols + c]) : 0.0f;
  }
}

// One block of threads per row. A thread has the same columns in both passes: kHeld runs of them in
// registers, all loaded before the first is used, or, where they are more (kHeld is 0), read back from its
// own cache.
template <typename T, int kRun, int kHeld>
__global__ void __launch_bounds__(kThreads)
    RmsNormKernel(float* x, int64_t x_stride, const T* y, int64_t y_stride, const float* weight, float eps,
                  int cols, T* out, int64_t out_stride) {
  __shared__ float partial[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  float* own = x + row * x_stride;
  float squares = 0;
  const auto square = [&](const Run<float, kRun>& values) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) squares += values.values[i] * values.values[i];
  };
  const auto add = [&](Run<float, kRun>& values, const Run<T, kRun>& added) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) values.values[i] += ToFloat(added.values[i]);
  };
  Run<float, kRun> held[kHeld > 0 ? kHeld : 1];
  if constexpr (kHeld > 0) {
    Run<T, kRun> added[kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int c = (h * kThreads + static_cast<int>(threadIdx.x)) * kRun;
      if (c >= cols) continue;
      held[h] = *reinterpret_cast<const Run<float, kRun>*>(own + c);
      if (y != nullptr) added[h] = *reinterpret_cast<const Run<T, kRun>*>(y + row * y_stride + c);
    }
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int c = (h * kThreads + static_cast<int>(threadIdx.x)) * kRun;
      if (c >= cols) continue;
      if (y != nullptr) {
        add(held[h], added[h]);
        *reinterpret_cast<Run<float, kRun>*>(own + c) = held[h];
      }
      square(held[h]);
    }
  }
  for (int c = static_cast<int>(threadIdx.x) * kRun; kHeld == 0 && c < cols; c += kThreads * kRun) {
    auto& run = *reinterpret_cast<Run<float, kRun>*>(own + c);
    Run<float, kRun> values = run;
    if (y != nullptr) {
      add(values, *reinterpret_cast<const Run<T, kRun>*>(y + row * y_stride + c));
      run = values;
    }
    square(values);
  }
  squares = WarpSum(squares);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = squares;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / kWarp; ++w) total += partial[w];
  const float factor = rsqrtf(total / static_cast<float>(cols) + eps);
  const auto write = [&](int c, const Run<float, kRun>& values) {
    const auto weights = *reinterpret_cast<const Run<float, kRun>*>(weight + c);
    Run<T, kRun> result;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      result.values[i] = FromFloat<T>(values.values[i] * factor * weights.values[i]);
    }
    *reinterpret_cast<Run<T, kRun>*>(out + row * out_stride + c) = result;
  };
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int c = (h * kThreads + static_cast<int>(threadIdx.x)) * kRun;
      if (c < cols) write(c, held[h]);
    }
  } else {
    for (int c = static_cast<int>(threadIdx.x) * kRun; c < cols; c += kThreads * kRun) {
      write(c, *reinterpret_cast<const Run<float, kRun>*>(own + c));
    }
  }
}

template <typename T, int kRun>
__global__ void __launch_bounds__(kThreads)
    AddBiasKernel(T* matrix, int64_t stride, const float* bias, int cols) {
  const int c = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kRun;
  if (c >= cols) return;
  auto& run = *reinterpret_cast<Run<T, kRun>*>(matrix + static_cast<int64_t>(blockIdx.x) * stride + c);
  const auto added = *reinterpret_cast<const Run<float, kRun>*>(bias + c);
  Run<T, kRun> result = run;
#pragma unroll
  for (int i = 0; i < kRun; ++i) result.values[i] = FromFloat<T>(ToFloat(result.values[i]) + added.values[i]);
  run = result;
}

template <typename T, int kRun>
__global__ void __launch_bounds__(kThreads)
    SwiGluKernel(const T* gate_up, int64_t in_stride, int width, T* out, int64_t out_stride) {
  const int c = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kRun;
  if (c >= width) return;
  const T* row = gate_up + static_cast<int64_t>(blockIdx.x) * in_stride;
  const auto gate = *reinterpret_cast<const Run<T, kRun>*>(row + c);
  const auto up = *reinterpret_cast<const Run<T, kRun>*>(row + width + c);
  Run<T, kRun> result;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const float g = ToFloat(gate.values[i]);
    result.values[i] = FromFloat<T>(g / (1 + __expf(-g)) * ToFloat(up.values[i]));
  }
  *reinterpret_cast<Run<T, kRun>*>(out + static_cast<int64_t>(blockIdx.x) * out_stride + c) = result;
}

__global__ void __launch_bounds__(kThreads)
    GatherKernel(const std::byte* from, int64_t from_stride, const int32_t* rows, int words, std::byte* to,
                 int64_t to_stride) {
  const auto* source = reinterpret_cast<const uint32_t*>(from + rows[blockIdx.x] * from_stride);
  auto* target = reinterpret_cast<uint32_t*>(to + blockIdx.x * to_stride);
  for (int w = static_cast<int>(threadIdx.x); w < words; w += kThreads) target[w] = source[w];
}

// Calls launch with a value of the type that `dtype` names.
template <typename Launch>
void WithType(DType dtype, const Launch& launch) {
  dtype == DType::kBF16 ? launch(__nv_bfloat16()) : launch(__half());
}

unsigned Blocks(int64_t values, int per_block) {
  return static_cast<unsigned>((values + per_block - 1) / per_block);
}

// True if rows of these strides can be moved in runs of `run` values: all start aligned if the first does.
bool InRuns(int run, std::initializer_list<int64_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [run](int64_t count) { return count % run == 0; });
}

}  // namespace

void Embed(const void* table, DType dtype, int64_t table_rows, const int32_t* tokens, const int32_t* drawn,
           int64_t first, int rows, int cols, float* out, int64_t out_stride, cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto type) {
    using T = decltype(type);
    EmbedKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        static_cast<const T*>(table), table_rows, tokens, drawn, first, cols, out, out_stride);
  });
  CheckLaunch("embed");
}

void RmsNorm(float* x, int64_t x_stride, const void* y, int64_t y_stride, const float* weight, float eps,
             int rows, int cols, void* out, int64_t out_stride, DType dtype, cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto type) {
    using T = decltype(type);
    const bool runs = InRuns(4, {x_stride, y_stride, out_stride, cols});
    const auto kernel = !runs                      ? &RmsNormKernel<T, 1, 0>
                        : cols <= 4 * 4 * kThreads ? &RmsNormKernel<T, 4, 4>
                        : cols <= 8 * 4 * kThreads ? &RmsNormKernel<T, 4, 8>
                                                   : &RmsNormKernel<T, 4, 0>;
    kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        x, x_stride, static_cast<const T*>(y), y_stride, weight, eps, cols, static_cast<T*>(out), out_stride);
  });
  CheckLaunch("RMS norm");
}

void AddBias(void* matrix, int64_t stride, const float* bias, int rows, int cols, DType dtype,
             cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto type) {
    using T = decltype(type);
    const bool runs = InRuns(4, {stride, cols});
    const auto kernel = runs ? &AddBiasKernel<T, 4> : &AddBiasKernel<T, 1>;
    const dim3 grid(static_cast<unsigned>(rows), Blocks(cols, kThreads * (runs ? 4 : 1)));
    kernel<<<grid, kThreads, 0, stream>>>(static_cast<T*>(matrix), stride, bias, cols);
  });
  CheckLaunch("bias");
}

void SwiGlu(const void* gate_up, int64_t in_stride, int rows, int width, void* out, int64_t out_stride,
            DType dtype, cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto type) {
    using T = decltype(type);
    const bool runs = InRuns(8, {in_stride, out_stride, width});
    const auto kernel = runs ? &SwiGluKernel<T, 8> : &SwiGluKernel<T, 1>;
    const dim3 grid(static_cast<unsigned>(rows), Blocks(width, kThreads * (runs ? 8 : 1)));
    kernel<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(gate_up), in_stride, width,
                                          static_cast<T*>(out), out_stride);
  });
  CheckLaunch("SwiGLU");
}

cudaError_t CodeForGpu() { return FindCode(&GatherKernel); }

void GatherRows(const void* from, int64_t from_stride, const int32_t* rows, int count, int row_bytes,
                void* to, int64_t to_stride, cudaStream_t stream) {
  if (count == 0) return;
  GatherKernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(static_cast<const std::byte*>(from),
                                                                      from_stride, rows, row_bytes / 4,
                                                                      static_cast<std::byte*>(to), to_stride);
  CheckLaunch("gather rows");
}

}  // namespace baton::kernels::cuda
