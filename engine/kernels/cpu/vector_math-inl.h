// The vector functions that several kernels share. Every one of them does the same operations, in the same
// order, to a value whatever the width of the vector it sits in, so that machines with different widths
// compute the same bits. Included once per instruction set, inside of Highway's foreach_target.
#if defined(BATON_COMMON_KERNELS_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_COMMON_KERNELS_CPU_VECTOR_MATH_INL_H_
#undef BATON_COMMON_KERNELS_CPU_VECTOR_MATH_INL_H_
#else
#define BATON_COMMON_KERNELS_CPU_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums are kept in 16 parts, one per lane of the widest vector; narrower ones take several.
using F = hn::CappedTag<float, 16>;
using Vec = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kSumLanes = 16;
constexpr int kSumVectors = kSumLanes / kLanes;

constexpr float kLog2E = 1.44269504088896341f;

// 2^x, relative error below 2e-7; exactly 1 at 0, 0 below 2^-126 (so at minus infinity), at most 2^127; NaN
// stays NaN. x = n + r with n an integer and |r| <= 1/2; 2^r is a polynomial through its values at the
// Chebyshev nodes.
template <class D>
HWY_INLINE hn::Vec<D> Exp2(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> bits;
  const auto underflow = hn::Lt(x, hn::Set(d, -126.0f));
  // The bound stands first: x86 returns the second operand if one is NaN.
  x = hn::Min(hn::Set(d, 127.0f), hn::Max(hn::Set(d, -126.0f), x));
  // Beside 1.5 * 2^23, a sum has no room for fractions: n is in its lowest bits.
  const auto whole = hn::Set(d, 0x1.8p23f);
  const auto n = hn::Add(x, whole);
  const auto r = hn::Sub(x, hn::Sub(n, whole));
  auto p = hn::Set(d, 0.0001545316294512069f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.0013390863364671234f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.009618082557277852f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550357114219078f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.24022650760568126f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931471880262288f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto scale =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, n)), hn::Set(bits, 127u << 23)));
  return hn::IfThenZeroElse(underflow, hn::Mul(p, scale));
}

// The 16 parts of a sum, added in a fixed tree.
HWY_INLINE float SumOfParts(const Vec (&parts)[kSumVectors]) {
  HWY_ALIGN float lanes[kSumLanes];
  for (int v = 0; v < kSumVectors; ++v) hn::Store(parts[v], F(), lanes + v * kLanes);
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
