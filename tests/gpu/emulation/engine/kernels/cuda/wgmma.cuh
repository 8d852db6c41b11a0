// Stands before engine/kernels/cuda/wgmma.cuh in the emulation: the same functions over warpgroups.h.
#pragma once

#include "engine/kernels/cuda/device_math.cuh"
#include "tests/gpu/emulation/warpgroups.h"

#define BATON_HAS_WGMMA

namespace baton::kernels::cuda {

template <typename T>
float ValueOfBits(uint16_t bits) {
  return Half<T>(bits, 0);
}

template <typename T>
void WgmmaScores(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  ::emulation::IssueProduct({.n = 128,
                             .d = d,
                             .a_descriptor = a,
                             .b_descriptor = b,
                             .accumulate = accumulate,
                             .value = ValueOfBits<T>});
}
template <typename T, size_t kRegisters>
void WgmmaValues(float (&d)[kRegisters], const uint32_t (&a)[4], uint64_t b) {
  ::emulation::IssueProduct(
      {.n = static_cast<int>(2 * kRegisters), .d = d, .a = a, .b_descriptor = b, .value = ValueOfBits<T>});
}

inline void WgmmaFence() { ::emulation::FenceProducts(); }
inline void WgmmaCommit() { ::emulation::CommitProducts(); }
template <int kLeft>
void WgmmaWait() {
  ::emulation::WaitForProducts(kLeft);
}
// Does nothing: a compiler's reordering is not emulated.
template <typename Registers>
void Pin(Registers&) {}
inline void ComputedByNow(float) {}
inline void FenceProxyAsync() { ::emulation::FenceProxy(); }

}  // namespace baton::kernels::cuda
