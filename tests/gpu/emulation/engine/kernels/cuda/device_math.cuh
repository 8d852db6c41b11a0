// Stands before engine/kernels/cuda/device_math.cuh in the emulation: the same functions, with the warp-wide
// instructions written out after the PTX ISA. Asynchronous copies are made when they are waited for, not
// before, so that a missing wait shows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "tests/gpu/emulation/fibers.h"
#include "tests/gpu/emulation/warpgroups.h"

namespace baton::kernels::cuda {

using tensor::DType;

inline constexpr int kWarp = 32;

inline float ToFloat(float value) { return value; }
inline float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
inline float ToFloat(__half value) { return __half2float(value); }

template <typename T>
T FromFloat(float value);
template <>
inline __nv_bfloat16 FromFloat(float value) {
  return __float2bfloat16_rn(value);
}
template <>
inline __half FromFloat(float value) {
  return __float2half_rn(value);
}

template <typename T>
uint32_t Pack2(float low, float high) {
  const T pair[2] = {FromFloat<T>(low), FromFloat<T>(high)};
  uint32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  return bits;
}

template <int kFirst, int kSecond>
uint32_t PickBytes(uint32_t bytes) {
  return (bytes >> (8 * kFirst) & 0xFF) | (bytes >> (8 * kSecond) & 0xFF) << 8;
}

inline float WarpSum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  return value;
}

template <typename T>
float Half(uint32_t pair, int which) {
  T halves[2];
  std::memcpy(static_cast<void*>(halves), &pair, sizeof pair);
  return ToFloat(halves[which]);
}

// mma.sync.aligned.m16n8k16: "Matrix fragments for mma.m16n8k16 with floating point type".
template <typename T>
void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragments {
    float* d;
    const uint32_t* a;
    uint32_t b[2];
  } own{d, a, {b0, b1}};
  ::emulation::MeetWarp(&own, [](void* const* lanes) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& f = *static_cast<const Fragments*>(lanes[lane]);
      const int group = lane >> 2, thread = lane & 3;
      for (int i = 0; i < 8; ++i) {
        const int row = group + ((i / 2) % 2 == 0 ? 0 : 8);
        const int col = thread * 2 + (i & 1) + (i < 4 ? 0 : 8);
        a[row][col] = Half<T>(f.a[i / 2], i & 1);
      }
      for (int i = 0; i < 4; ++i)
        b[thread * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = Half<T>(f.b[i / 2], i & 1);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const auto& f = *static_cast<const Fragments*>(lanes[lane]);
      for (int i = 0; i < 4; ++i) {
        const int row = (lane >> 2) + (i < 2 ? 0 : 8), col = (lane & 3) * 2 + (i & 1);
        for (int k = 0; k < 16; ++k) f.d[i] += a[row][k] * b[k][col];
      }
    }
  });
}

inline uint32_t SharedAddress(const void* shared) {
  const uint32_t address = ::emulation::SharedAddressOf(shared);
  BATON_CHECK(address != 0) << " not in shared memory";
  return address;
}
inline void StoreShared(void* shared, uint4 chunk) {
  std::memcpy(shared, &chunk, sizeof chunk);
  ::emulation::WroteShared(shared);
}

// ldmatrix.sync.aligned.m8n8.x4(.trans): "Fragment layout for one 8x8 matrix with 16-bit elements".
inline void Load4(uint32_t (&r)[4], const void* row, bool transposed) {
  struct Own {
    uint32_t* r;
    const void* row;
  } own{r, row};
  ::emulation::MeetWarp(&own, [transposed](void* const* lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t values[8][8];
      for (int i = 0; i < 8; ++i)
        std::memcpy(values[i], static_cast<const Own*>(lanes[matrix * 8 + i])->row, 16);
      for (int lane = 0; lane < 32; ++lane) {
        const int at = lane / 4, pair = lane % 4 * 2;
        const uint16_t low = transposed ? values[pair][at] : values[at][pair];
        const uint16_t high = transposed ? values[pair + 1][at] : values[at][pair + 1];
        static_cast<const Own*>(lanes[lane])->r[matrix] = static_cast<uint32_t>(high) << 16 | low;
      }
    }
  });
}
inline void LoadMatrices(uint32_t (&r)[4], const void* row) { Load4(r, row, false); }
inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) { Load4(r, row, true); }

// Copies of a thread: those not committed yet, and groups not waited for.
struct Copies {
  struct Copy {
    void* shared;
    std::array<unsigned char, 16> bytes;
  };
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};
inline Copies& CopiesOfThread() {
  static std::map<const void*, Copies> all;  // by fiber; empty again when a kernel has waited for all
  return all[&::emulation::Current()];
}

inline void CopyAsync16(void* shared, const void* global, bool valid) {
  Copies::Copy copy{shared, {}};
  if (valid) std::memcpy(copy.bytes.data(), global, 16);
  CopiesOfThread().open.push_back(copy);
}
inline void CommitCopies() {
  Copies& copies = CopiesOfThread();
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}
template <int kLeft>
void WaitForCopies() {
  Copies& copies = CopiesOfThread();
  while (copies.groups.size() > kLeft) {
    for (const Copies::Copy& copy : copies.groups.front()) {
      std::memcpy(copy.shared, copy.bytes.data(), 16);
      ::emulation::WroteShared(copy.shared);
    }
    copies.groups.pop_front();
  }
}

inline float Exp2(float x) { return std::exp2(x); }

template <typename T>
inline constexpr DType kNative = DType::kBF16;
template <>
inline constexpr DType kNative<__half> = DType::kF16;

}  // namespace baton::kernels::cuda
