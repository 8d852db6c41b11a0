// A grid of GPU threads on one CPU thread: blocks one after the other, the threads of a block as fibers, each
// running until it comes to an operation of its whole warp or block. Fibers are resumed in a scrambled order,
// so that what only works in the order of lanes does not work here.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

namespace emulation {

struct Lane {
  uint3 thread = {}, block = {};
  dim3 grid;
};
// The lane of the running fiber.
Lane& Current();

// Runs `kernel` for every thread. The kernel's dynamic shared memory is the first `shared_bytes` of `memory`;
// each block finds NaNs there. At once if the stream is null, and otherwise by the launcher, which puts it in
// the order of the stream (runtime.h).
void Run(void* memory, dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
         const std::function<void()>& kernel);
void SetLauncher(std::function<void(cudaStream_t stream, std::function<void()> grid)> launcher);

// True if the build has code for the emulated GPU.
bool& HasCode();

// Counts blocks as they begin.
uint64_t BlockNumber();

// Dynamic shared memory as instructions address it: it begins behind what the system keeps, 1 KB on sm_90.
inline constexpr uint32_t kSharedWindow = 1024;
size_t SharedBytes();
uint32_t SharedAddressOf(const void* where);           // 0 if it is not there
const void* SharedAt(uint32_t address, size_t bytes);  // ends the process beyond the end

// Meets the other 31 lanes of the warp, or 127 of the warpgroup, then calls combine(arguments) once,
// `arguments` having each lane's own.
void MeetWarp(void* argument, const std::function<void(void* const* arguments)>& combine);
void MeetWarpgroup(void* argument, const std::function<void(void* const* arguments)>& combine);
void MeetBlock();

}  // namespace emulation

#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#define threadIdx (::emulation::Current().thread)
#define blockIdx (::emulation::Current().block)
#define gridDim (::emulation::Current().grid)

inline void __syncthreads() { ::emulation::MeetBlock(); }
inline void __syncwarp() {
  ::emulation::MeetWarp(nullptr, [](void* const*) {});
}
inline float __shfl_xor_sync(uint32_t, float value, int mask) {
  struct Swap {
    float in, out;
  } own{value, 0};
  ::emulation::MeetWarp(&own, [mask](void* const* lanes) {
    for (int l = 0; l < 32; ++l) static_cast<Swap*>(lanes[l])->out = static_cast<Swap*>(lanes[l ^ mask])->in;
  });
  return own.out;
}
template <typename T>
T __shfl_sync(uint32_t, T value, int from) {
  T all = value;
  ::emulation::MeetWarp(&all, [from](void* const* lanes) {
    const T chosen = *static_cast<const T*>(lanes[from]);
    for (int l = 0; l < 32; ++l) *static_cast<T*>(lanes[l]) = chosen;
  });
  return all;
}
// One fiber runs at a time.
template <typename T>
T atomicAdd(T* where, T value) {
  return std::exchange(*where, *where + value);
}
template <typename T>
T atomicMin(T* where, T value) {
  return std::exchange(*where, value < *where ? value : *where);
}
template <typename T>
T atomicMax(T* where, T value) {
  return std::exchange(*where, value > *where ? value : *where);
}
inline void __threadfence() {}
template <typename T>
T atomicOr(T* where, T value) {
  return std::exchange(*where, *where | value);
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
