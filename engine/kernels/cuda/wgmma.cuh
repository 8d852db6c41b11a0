// The product of a warpgroup (four warps) that sm_90a has: wgmma, asynchronous, its operands in shared memory
// or, for A, in registers. PTX ISA 9.x, "Asynchronous warpgroup level matrix instructions". What a kernel
// owes it: WgmmaFence() before the first product after registers were touched; FenceProxyAsync() by whoever
// wrote shared memory, between the write and the barrier behind which products read it; and no look at an
// accumulator, no change of an A register or of shared memory until WgmmaWait says that the products are
// done.
//
// tests/gpu/emulation has the same functions for a CPU.
#pragma once

#include "engine/kernels/cuda/device_math.cuh"

// Only code for exactly this architecture knows the instruction; elsewhere these functions don't exist.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BATON_HAS_WGMMA

namespace baton::kernels::cuda {

// 8, 16 and 32 registers as operands.
#define BATON_8(d, i)                                                                           \
  "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]), "+f"((d)[(i) + 4]), \
      "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define BATON_32(d, i) BATON_8(d, i), BATON_8(d, (i) + 8), BATON_8(d, (i) + 16), BATON_8(d, (i) + 24)
// Their names: the first 32, the next 32.
#define BATON_LOW                                          \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define BATON_HIGH                                                   \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// The last operands of all three are immediates: signs of A and B, then whether A and B are transposed. B
// always is (N-major), A never.

// d [64, 128] = a b, or += with `accumulate`: a [64, 16] K-major, b [16, 128] N-major, by descriptors.
template <typename T>
__device__ void WgmmaScores(float (&d)[64], uint64_t a, uint64_t b, bool accumulate);
#define BATON_SCORES(type)                                                                       \
  asm volatile(                                                                                  \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" BATON_LOW "," BATON_HIGH \
      "}, %64, %65, p, 1, 1, 0, 1;\n}\n"                                                         \
      : BATON_32(d, 0), BATON_32(d, 32)                                                          \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
template <>
__device__ inline void WgmmaScores<__nv_bfloat16>(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  BATON_SCORES("bf16");
}
template <>
__device__ inline void WgmmaScores<__half>(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  BATON_SCORES("f16");
}

// d [64, N] += a b: a [64, 16] in registers, b [16, N] N-major by its descriptor. Per warp, 16 rows: lane l
// has of A what Mma's has, and d[4 n], ... what Mma's d has for columns 8 n to 8 n + 7.
template <typename T>
__device__ void WgmmaValues(float (&d)[32], const uint32_t (&a)[4], uint64_t b);
template <typename T>
__device__ void WgmmaValues(float (&d)[64], const uint32_t (&a)[4], uint64_t b);
#define BATON_VALUES_64(type)                                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" BATON_LOW \
               "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"                                 \
               : BATON_32(d, 0)                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define BATON_VALUES_128(type)                                                                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" BATON_LOW "," BATON_HIGH \
               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"                                                 \
               : BATON_32(d, 0), BATON_32(d, 32)                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
template <>
__device__ inline void WgmmaValues<__nv_bfloat16>(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  BATON_VALUES_64("bf16");
}
template <>
__device__ inline void WgmmaValues<__half>(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  BATON_VALUES_64("f16");
}
template <>
__device__ inline void WgmmaValues<__nv_bfloat16>(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  BATON_VALUES_128("bf16");
}
template <>
__device__ inline void WgmmaValues<__half>(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  BATON_VALUES_128("f16");
}
#undef BATON_8
#undef BATON_32
#undef BATON_LOW
#undef BATON_HIGH
#undef BATON_SCORES
#undef BATON_VALUES_64
#undef BATON_VALUES_128

__device__ inline void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// Until at most kLeft of the committed groups are under way.
template <int kLeft>
__device__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kLeft) : "memory");
}
// The compiler knows nothing of products under way: after a wait, what they wrote or read is pinned, so that
// nothing that uses it is moved to before.
template <int N>
__device__ void Pin(float (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
__device__ void Pin(uint32_t (&registers)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(registers[i][j])::"memory");
  }
}
// The assembler moves a wait up over arithmetic that does not need what is waited for, and then nothing
// overlaps with the products. Something it has to do where a result of that arithmetic is negative, which it
// never is, holds the wait back. (Not a trap: behind one ptxas 13.0 serialises all products.)
__device__ inline void ComputedByNow(float never_negative) {
  if (never_negative < 0) asm volatile("nanosleep.u32 1;\n");
}

// Lets the asynchronous proxy, through which wgmma reads, see what this thread has written to shared memory.
__device__ inline void FenceProxyAsync() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

}  // namespace baton::kernels::cuda

#endif
