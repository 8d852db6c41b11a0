// Math shared by the device code: conversions, reductions, the tensor cores' m16n8k16 product and the loads
// that feed it. PTX ISA 8.x, "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"

namespace baton::kernels::cuda {

using tensor::DType;

inline constexpr int kWarp = 32;

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float ToFloat(__half value) { return __half2float(value); }

template <typename T>
__device__ T FromFloat(float value);
template <>
__device__ inline __nv_bfloat16 FromFloat(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half FromFloat(float value) {
  return __float2half_rn(value);
}

// Two values as one register, the first in the lower half.
template <typename T>
__device__ uint32_t Pack2(float low, float high);
template <>
__device__ inline uint32_t Pack2<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ inline uint32_t Pack2<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Two bytes of a register, in the lower half of another.
template <int kFirst, int kSecond>
__device__ uint32_t PickBytes(uint32_t bytes) {
  return __byte_perm(bytes, 0, 0x4400 | kSecond << 4 | kFirst);
}

// The same sum in every lane, in a fixed order.
__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  return value;
}

// d += a b: a [16, 16] row-major, b [16, 8] column-major, d [16, 8] in float32. Of lane l, with g = l / 4 and
// t = l % 4:
//   a[0]: row g,     columns 2t, 2t + 1    a[1]: row g + 8     a[2]: row g, columns + 8     a[3]: both
//   b[0]: column g,  rows 2t, 2t + 1       b[1]: rows + 8
//   d[0], d[1]: row g, columns 2t, 2t + 1  d[2], d[3]: row g + 8
template <typename T>
__device__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void Mma<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void Mma<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where a pointer to shared memory points, in the instructions' own terms.
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ inline void StoreShared(void* shared, uint4 chunk) { *static_cast<uint4*>(shared) = chunk; }

// Four 8x8 matrices of 16-bit values from shared memory: lanes 8i to 8i + 7 give the addresses of matrix i's
// rows. Plain: lane l gets columns 2t, 2t + 1 of row g; transposed: rows 2t, 2t + 1 of column g.
__device__ inline void LoadMatrices(uint32_t (&r)[4], const void* row) {
  const uint32_t address = SharedAddress(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  const uint32_t address = SharedAddress(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// 16 bytes from global to shared memory behind the thread's back; zeros where `valid` is false.
__device__ inline void CopyAsync16(void* shared, const void* global, bool valid) {
  const uint32_t address = SharedAddress(shared);
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global), "r"(bytes)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kLeft>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
}

// 2^x, flushing to 0 below the range: exp2f compiles to more than the one instruction.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// The type of a KV value that tensor cores take as it is.
template <typename T>
inline constexpr DType kNative = DType::kBF16;
template <>
inline constexpr DType kNative<__half> = DType::kF16;

}  // namespace baton::kernels::cuda
