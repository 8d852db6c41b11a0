// The passes of bf16_attention.h by multiply-adds of float32. Included once per instruction set.
#if defined(BATON_COMMON_KERNELS_CPU_BF16_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_COMMON_KERNELS_CPU_BF16_ATTENTION_INL_H_
#undef BATON_COMMON_KERNELS_CPU_BF16_ATTENTION_INL_H_
#else
#define BATON_COMMON_KERNELS_CPU_BF16_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "engine/kernels/cpu/bf16_attention.h"
#include "engine/kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int kBF16Half = kBF16Block / 2;  // columns of A, and of B

// Vectors of KV whose chains run side by side for so many rows: enough to hide latency, few enough for
// the registers.
constexpr int BF16VectorsAtOnce(int rows) { return kLanes == 16 || rows <= 2 ? 4 : 2; }

HWY_INLINE const uint16_t* BF16At(const std::byte* from) { return reinterpret_cast<const uint16_t*>(from); }

// bfloat16 is the upper half of a float32.
template <class D>
HWY_INLINE hn::Vec<D> LoadBF16(D d, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::Rebind<uint32_t, D> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from))));
}

// Adds the products of one row of KV, kVectors vectors from `from` on, to the sums of kRows rows of x.
template <class D, int kRows, int kVectors>
HWY_INLINE void AddBF16Row(D f, const float* x, int64_t x_stride, const uint16_t* const (&from)[kVectors],
                           hn::Vec<D> (&sum)[kRows][kVectors]) {
  hn::Vec<D> row[kVectors];
  BATON_UNROLLED
  for (int v = 0; v < kVectors; ++v) row[v] = LoadBF16(f, from[v]);
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    const auto value = hn::Set(f, x[r * x_stride]);
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, row[v], sum[r][v]);
  }
}

// A block of columns: C += A + B, at at[r * kPanelRows + v * lanes], where add(half, sum) adds the products
// of a half. A lies in memory while B is computed.
template <class D, int kRows, int kVectors, class Add>
HWY_INLINE void AddBF16Block(D f, float* at, const Add& add) {
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
  HWY_ALIGN float first[kRows * kVectors * kWidth];
  hn::Vec<D> sum[kRows][kVectors];
  for (int half = 0; half < 2; ++half) {
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
    }
    add(half, sum);
    if (half == 1) break;
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], f, first + (r * kVectors + v) * kWidth);
    }
  }
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      const auto both = hn::Add(hn::Load(f, first + (r * kVectors + v) * kWidth), sum[r][v]);
      float* const to = at + r * kPanelRows + v * kWidth;
      hn::StoreU(hn::Add(hn::LoadU(f, to), both), f, to);
    }
  }
}

template <int kRows>
void ScoreBF16Rows(const BF16Scores& job) {
  constexpr int kVectors = BF16VectorsAtOnce(kRows);
  constexpr int kBlocks = HWY_MAX(1, kVectors / kSumVectors), kParts = kVectors / kBlocks;
  const auto* const x = reinterpret_cast<const float*>(job.x);
  const int64_t x_stride = job.x_stride / static_cast<int64_t>(sizeof(float));
  const TileOfBlocks& keys = *job.keys;
  for (int r = 0; r < kRows; ++r) {
    std::fill_n(job.scores + r * kTileTokens, kTileTokens, 0.0f);
  }
  for (int block = job.first_block / kBlocks * kBlocks; block < job.end_block; block += kBlocks) {
    for (int part = 0; part < kSumVectors; part += kParts) {
      for (int column = 0; column < job.head_dim; column += kBF16Block) {
        float* const at = job.scores + block * kBlockTokens + part * kLanes;
        AddBF16Block<F, kRows, kVectors>(F(), at, [&](int half, auto& sum) HWY_ATTR {
          const int begin = column + half * kBF16Half;
          const int end = HWY_MIN(begin + kBF16Half, job.head_dim);
          for (int d = begin; d < end; ++d) {
            const uint16_t* from[kVectors];
            BATON_UNROLLED
            for (int v = 0; v < kVectors; ++v) {
              from[v] =
                  BF16At(keys.now[block + v / kParts]) + d * kBlockTokens + (part + v % kParts) * kLanes;
            }
            if (keys.ahead && part == 0) {  // twice each line, see bf16_attention_dot.cc
              for (int b = 0; b < kBlocks; ++b) {
                __builtin_prefetch(BF16At(keys.next[block + b]) + d * kBlockTokens, 0, 2);
              }
            }
            AddBF16Row<F, kRows, kVectors>(F(), x + d, x_stride, from, sum);
          }
        });
      }
    }
  }
}

template <class D, int kRows, int kVectors>
void MixBF16Columns(const BF16Mix& job, int column) {
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
  const auto* const x = reinterpret_cast<const float*>(job.x);
  const int64_t x_stride = job.x_stride / static_cast<int64_t>(sizeof(float));
  const TileOfBlocks& values = *job.values;
  float* const at = job.out + OutPanel(column) + column % kPanelRows;
  for (int token = job.range.begin / kBF16Block * kBF16Block; token < job.range.end; token += kBF16Block) {
    AddBF16Block<D, kRows, kVectors>(D(), at, [&](int half, auto& sum) HWY_ATTR {
      // The tokens of a half are those of a block.
      static_assert(kBF16Half == kBlockTokens);
      const int start = token + half * kBF16Half;
      const int begin = HWY_MAX(job.range.begin - start, 0);
      const int end = HWY_MIN(job.range.end - start, kBF16Half);
      const uint16_t* const now = BF16At(values.now[start / kBlockTokens]) + column;
      const uint16_t* const next = BF16At(values.next[start / kBlockTokens]) + column;
      for (int t = begin; t < end; ++t) {
        const uint16_t* from[kVectors];
        BATON_UNROLLED
        for (int v = 0; v < kVectors; ++v) from[v] = now + t * job.head_dim + v * kWidth;
        if (values.ahead) {
          for (int v = 0; v < kVectors; ++v) __builtin_prefetch(next + t * job.head_dim + v * kWidth, 0, 2);
        }
        AddBF16Row<D, kRows, kVectors>(D(), x + start + t, x_stride, from, sum);
      }
    });
  }
}

template <int kRows>
void MixBF16Rows(const BF16Mix& job) {
  constexpr int kVectors = BF16VectorsAtOnce(kRows);
  int column = 0;
  for (; column + kVectors * kLanes <= job.head_dim; column += kVectors * kLanes) {
    MixBF16Columns<F, kRows, kVectors>(job, column);
  }
  for (; column + kLanes <= job.head_dim; column += kLanes) MixBF16Columns<F, kRows, 1>(job, column);
  // 8 columns are left, of vectors of 16.
  if (column < job.head_dim) MixBF16Columns<hn::CappedTag<float, 8>, kRows, 1>(job, column);
}

inline void ScoreBF16(const BF16Scores& job) {
  WithRows(job.rows, [&](auto rows) { ScoreBF16Rows<rows.value>(job); });
}
inline void MixBF16(const BF16Mix& job) {
  WithRows(job.rows, [&](auto rows) { MixBF16Rows<rows.value>(job); });
}

// True if the values of the tokens in `range` have neither an infinity nor a NaN.
inline bool BF16ValuesAreFinite(const TileOfBlocks& values, TokenRange range, int head_dim) {
  const hn::CappedTag<uint16_t, 8> d;  // what divides every head
  auto most = hn::Zero(d);
  for (int t = range.begin; t < range.end; ++t) {
    const uint16_t* const row = BF16At(values.now[t / kBlockTokens]) + t % kBlockTokens * head_dim;
    for (int i = 0; i < head_dim; i += static_cast<int>(hn::MaxLanes(d))) {
      most = hn::Max(most, hn::And(hn::LoadU(d, row + i), hn::Set(d, 0x7FFF)));
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, most)) < 0x7F80;
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
