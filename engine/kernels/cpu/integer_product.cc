// Rows of x as integers, and sums as floats: the vector code of integer_product.h.
#include "engine/kernels/cpu/integer_product.h"

#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/integer_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Words = hn::RebindToSigned<Floats>;
constexpr int kWords = static_cast<int>(hn::MaxLanes(Words()));

int32_t LargestInRow(const float* x, int64_t cols) {
  const Words words;
  const auto magnitude = hn::Set(words, 0x7FFFFFFF);
  auto largest = hn::Zero(words);
  const auto* bits = reinterpret_cast<const int32_t*>(x);
  int64_t k = 0;
  for (; k + kWords <= cols; k += kWords) {
    largest = hn::Max(largest, hn::And(hn::LoadU(words, bits + k), magnitude));
  }
  int32_t most = hn::GetLane(hn::MaxOfLanes(words, largest));
  for (; k < cols; ++k) {
    const int32_t one = std::bit_cast<int32_t>(x[k]) & 0x7FFFFFFF;
    most = one > most ? one : most;
  }
  return most;
}

}  // namespace

int32_t LargestI8(const float* x, int64_t cols) { return LargestInRow(x, cols); }

// The integers of a row of x: x[k] * by, to the nearest.
void QuantizeI8(const float* x, int64_t cols, float by, int8_t* out) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR  // whose NearestInt is off by one just below a half
  const Floats floats;
  const hn::Rebind<int8_t, Floats> bytes;
  const hn::Rebind<int16_t, Floats> halves;
  const auto scale = hn::Set(floats, by);
  for (; k + kWords <= cols; k += kWords) {
    const auto integers = hn::NearestInt(hn::Mul(hn::LoadU(floats, x + k), scale));
    hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(halves, integers)), bytes, out + k);
  }
#endif
  for (; k < cols; ++k) out[k] = static_cast<int8_t>(std::lrint(x[k] * by));
}

// out[r][n] = float(sums[r][n]) * (d[r] * scales[n]) (+ bias[n]), n < 64, where the rows of x begin with d.
void ScaleI8(const int32_t* sums, int64_t stride, int64_t rows, const PreparedRows& x, const float* scales,
             const float* bias, float* out, int64_t out_stride) {
  const Floats floats;
  const Words words;
  for (int64_t r = 0; r < rows; ++r, sums += stride, out += out_stride) {
    const auto row = hn::Set(floats, HeadOf(x.From(r).data).scale);
    for (int n = 0; n < kPanelRows; n += kWords) {
      const auto scale = hn::Mul(row, hn::LoadU(floats, scales + n));
      auto value = hn::Mul(hn::ConvertTo(floats, hn::LoadU(words, sums + n)), scale);
      if (bias != nullptr) value = hn::Add(value, hn::LoadU(floats, bias + n));
      hn::StoreU(value, floats, out + n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {
namespace {

// Below this, 127 / max|x| could overflow.
constexpr float kTiny = 0x1p-100f;

}  // namespace

template <Isa isa>
int32_t LargestOfRow(const float* x, int64_t cols) {
  return BATON_FOR_ISA(isa, LargestI8)(x, cols);
}

template <Isa isa>
IntegerRowHead QuantizeRow(const float* x, int64_t cols, int32_t largest_bits, int8_t* out) {
  const auto largest = std::bit_cast<float>(largest_bits);
  const bool finite = std::isfinite(largest), zero = finite && largest < kTiny;
  IntegerRowHead head = {.scale = zero ? 0.0f : finite ? largest / 127.0f : NAN, .sum = 0};
  if (zero || !finite) {
    std::memset(out, 0, static_cast<size_t>(cols));
  } else {
    BATON_FOR_ISA(isa, QuantizeI8)(x, cols, 127.0f / largest, out);
  }
  for (int64_t k = 0; k < cols; ++k) head.sum += out[k];
  return head;
}

template <Isa isa>
void ScaleRows(const PanelProduct& job, const float* scales, int64_t first, int64_t rows, const int32_t* sums,
               int64_t stride) {
  const PreparedRows x = job.prepared.From(first);
  float* const to = job.out + first * job.out_stride;
  if (job.width == kPanelRows) {
    return BATON_FOR_ISA(isa, ScaleI8)(sums, stride, rows, x, scales, job.bias, to, job.out_stride);
  }
  const auto width = static_cast<size_t>(job.width);
  float bias[kPanelRows] = {}, out[kPanelRows];
  int32_t padded[kPanelRows] = {};
  if (job.bias != nullptr) std::memcpy(bias, job.bias, width * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(padded, sums + r * stride, width * sizeof(int32_t));
    BATON_FOR_ISA(isa, ScaleI8)
    (padded, kPanelRows, 1, x.From(r), scales, job.bias != nullptr ? bias : nullptr, out, kPanelRows);
    std::memcpy(to + r * job.out_stride, out, width * sizeof(float));
  }
}

#define BATON_INTEGER_ROWS(isa)                                                      \
  template int32_t LargestOfRow<isa>(const float*, int64_t);                         \
  template IntegerRowHead QuantizeRow<isa>(const float*, int64_t, int32_t, int8_t*); \
  template void ScaleRows<isa>(const PanelProduct&, const float*, int64_t, int64_t, const int32_t*, int64_t)
BATON_INTEGER_ROWS(Isa::kBaseline);
BATON_INTEGER_ROWS(Isa::kAvx2);
BATON_INTEGER_ROWS(Isa::kAvx512);
BATON_INTEGER_ROWS(Isa::kAvx512Vnni);
BATON_INTEGER_ROWS(Isa::kAmx);
#undef BATON_INTEGER_ROWS

}  // namespace baton::kernels::cpu
#endif
