#include "engine/kernels/cpu/elementwise.h"

#include <cmath>
#include <cstring>

#include "engine/kernels/column_transform.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// The last count < 16 values of an array, padded with zeros.
struct Tail {
  Tail(const float* from, int64_t count) : bytes(static_cast<size_t>(count) * sizeof(float)) {
    memcpy(values, from, bytes);
  }
  void CopyTo(float* to) const { memcpy(to, values, bytes); }

  HWY_ALIGN float values[kSumLanes] = {};
  size_t bytes;
};

HWY_INLINE void AddSquares(const float* x, Vec (&sum)[kSumVectors]) {
  for (int v = 0; v < kSumVectors; ++v) {
    const Vec value = hn::LoadU(F(), x + v * kLanes);
    sum[v] = hn::MulAdd(value, value, sum[v]);
  }
}

HWY_INLINE void Scale(const float* x, const float* weight, Vec scale, float* out) {
  for (int v = 0; v < kSumVectors; ++v) {
    const Vec scaled = hn::Mul(hn::LoadU(F(), x + v * kLanes), scale);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(F(), weight + v * kLanes)), F(), out + v * kLanes);
  }
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const int64_t whole = n / kSumLanes * kSumLanes;
  Vec sum[kSumVectors];
  for (int v = 0; v < kSumVectors; ++v) sum[v] = hn::Zero(F());
  for (int64_t i = 0; i < whole; i += kSumLanes) AddSquares(x + i, sum);
  if (whole < n) AddSquares(Tail(x + whole, n - whole).values, sum);
  const Vec scale = hn::Set(F(), 1.0f / std::sqrt(SumOfParts(sum) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < whole; i += kSumLanes) Scale(x + i, weight + i, scale, out + i);
  if (whole < n) {
    Tail values(x + whole, n - whole);
    const Tail weights(weight + whole, n - whole);
    Scale(values.values, weights.values, scale, values.values);
    values.CopyTo(out + whole);
  }
}

void Add(float* x, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::Add(hn::LoadU(F(), x + i), hn::LoadU(F(), y + i)), F(), x + i);
  for (; i < n; ++i) x[i] += y[i];
}

HWY_INLINE Vec GatedValue(Vec gate, Vec up) {
  const Vec one = hn::Set(F(), 1.0f);
  const Vec exp = Exp2(F(), hn::Mul(gate, hn::Set(F(), -kLog2E)));
  return hn::Mul(hn::Div(gate, hn::Add(one, exp)), up);
}

void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(GatedValue(hn::LoadU(F(), gate + i), hn::LoadU(F(), up + i)), F(), out + i);
  }
  if (i < n) {
    Tail gates(gate + i, n - i);
    const Tail ups(up + i, n - i);
    hn::StoreU(GatedValue(hn::LoadU(F(), gates.values), hn::LoadU(F(), ups.values)), F(), gates.values);
    gates.CopyTo(out + i);
  }
}

// NaN stays NaN: the bound is the first operand, as in Exp2.
HWY_INLINE Vec ClampedValue(Vec gate, Vec up, Vec limit, Vec slope) {
  const Vec one = hn::Set(F(), 1.0f);
  const Vec low = hn::Min(limit, gate);
  const Vec within = hn::Min(limit, hn::Max(hn::Neg(limit), up));
  const Vec exp = Exp2(F(), hn::Mul(low, slope));
  return hn::Mul(hn::Div(low, hn::Add(one, exp)), hn::Add(within, one));
}

void ClampedSwiGlu(const float* gate, const float* up, float limit, float slope, int64_t n, float* out) {
  const Vec bound = hn::Set(F(), limit), by = hn::Set(F(), -slope * kLog2E);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(ClampedValue(hn::LoadU(F(), gate + i), hn::LoadU(F(), up + i), bound, by), F(), out + i);
  }
  if (i < n) {
    Tail gates(gate + i, n - i);
    const Tail ups(up + i, n - i);
    hn::StoreU(ClampedValue(hn::LoadU(F(), gates.values), hn::LoadU(F(), ups.values), bound, by), F(),
               gates.values);
    gates.CopyTo(out + i);
  }
}

void AddScaled(float* x, float weight, const float* y, int64_t n) {
  const Vec by = hn::Set(F(), weight);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::MulAdd(by, hn::LoadU(F(), y + i), hn::LoadU(F(), x + i)), F(), x + i);
  if (i < n) {
    Tail sums(x + i, n - i);
    const Tail values(y + i, n - i);
    hn::StoreU(hn::MulAdd(by, hn::LoadU(F(), values.values), hn::LoadU(F(), sums.values)), F(), sums.values);
    sums.CopyTo(x + i);
  }
}

HWY_INLINE Vec Exponential(Vec x, Vec shift) {
  return Exp2(F(), hn::Mul(hn::Sub(x, shift), hn::Set(F(), kLog2E)));
}

void Exponentials(const float* x, float shift, int64_t n, float* out) {
  const Vec by = hn::Set(F(), shift);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(Exponential(hn::LoadU(F(), x + i), by), F(), out + i);
  if (i < n) {
    Tail values(x + i, n - i);
    hn::StoreU(Exponential(hn::LoadU(F(), values.values), by), F(), values.values);
    values.CopyTo(out + i);
  }
}

HWY_INLINE void RotatePairs(float* low, float* high, const float* cos, const float* sin) {
  const Vec a = hn::LoadU(F(), low), b = hn::LoadU(F(), high);
  const Vec c = hn::LoadU(F(), cos), s = hn::LoadU(F(), sin);
  hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), F(), low);  // a c - b s
  hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), F(), high);    // b c + a s
}

void Rotate(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) RotatePairs(x + i, x + half + i, cos + i, sin + i);
  if (i < half) {
    Tail low(x + i, half - i), high(x + half + i, half - i);
    RotatePairs(low.values, high.values, Tail(cos + i, half - i).values, Tail(sin + i, half - i).values);
    low.CopyTo(x + i);
    high.CopyTo(x + half + i);
  }
}

// Lane i and lane i ^ h change places.
template <int h, class V>
HWY_INLINE V Across(V x) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (h == 1) return hn::Shuffle2301(x);
  if constexpr (h == 2) return hn::Shuffle1032(x);
  if constexpr (h == 4) return hn::SwapAdjacentBlocks(x);
  if constexpr (h == 8) return hn::ConcatLowerUpper(hn::DFromV<V>(), x, x);
#endif
  return x;
}

// H of blocks within a vector, from distance h on: of two lanes that are h apart, that with bit h of its
// number clear takes their sum, and the other the difference.
template <int h, int kBlock, class V>
HWY_INLINE V HadamardWithin(V x) {
  if constexpr (h < kLanes && h < kBlock) {
    const hn::RebindToUnsigned<hn::DFromV<V>> bits;
    constexpr int kBit = h == 1 ? 0 : h == 2 ? 1 : h == 4 ? 2 : 3;
    // Moved to where a float has its sign.
    const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<kBit>(hn::Iota(bits, 0)));
    const V apart = hn::Add(Across<h>(x), hn::Xor(x, hn::BitCast(hn::DFromV<V>(), sign)));
    return HadamardWithin<2 * h, kBlock>(apart);
  } else {
    return x;
  }
}

// n is a multiple of a block, and of a vector.
template <int kBlock>
void HadamardOf(const float* x, const float* scales, int64_t n, float* out) {
  constexpr int kVectors = kBlock < kLanes ? 1 : kBlock / kLanes;
  for (int64_t first = 0; first < n; first += kVectors * kLanes) {
    Vec values[kVectors];
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      values[v] = hn::LoadU(F(), x + first + v * kLanes);
      if (scales != nullptr) values[v] = hn::Mul(values[v], hn::LoadU(F(), scales + first + v * kLanes));
      values[v] = HadamardWithin<1, kBlock>(values[v]);
    }
    BATON_UNROLLED
    for (int h = 1; h < kVectors; h *= 2) {
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        if (v & h) continue;
        const Vec a = values[v], b = values[v + h];
        values[v] = hn::Add(a, b);
        values[v + h] = hn::Sub(a, b);
      }
    }
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) hn::StoreU(values[v], F(), out + first + v * kLanes);
  }
}

void HadamardOfBlocks(const float* x, const float* scales, int64_t block, int64_t n, float* out) {
  switch (block) {
    case 64:
      return HadamardOf<64>(x, scales, n, out);
    case 32:
      return HadamardOf<32>(x, scales, n, out);
    case 16:
      return HadamardOf<16>(x, scales, n, out);
    case 8:
      if (n % kLanes == 0) return HadamardOf<8>(x, scales, n, out);
      [[fallthrough]];
    default:
      for (int64_t i = 0; i < n; ++i) out[i] = scales == nullptr ? x[i] : x[i] * scales[i];
      return Hadamard({out, static_cast<size_t>(n)}, block);
  }
}

}  // namespace

const ElementwiseTable& Elementwise() {
  static constexpr ElementwiseTable table = {&RmsNorm,   &Add,          &SwiGlu, &ClampedSwiGlu,
                                             &AddScaled, &Exponentials, &Rotate, &HadamardOfBlocks};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {

const ElementwiseTable& ElementwiseFor(Isa isa) { return BATON_FOR_ISA(isa, Elementwise)(); }

}  // namespace baton::kernels::cpu
#endif
