#include "engine/model/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "common/base/check.h"

namespace baton::model {
namespace {

constexpr float kDamping = 0.01f;
// Columns of a block of the factorization.
constexpr int64_t kBlock = 64;

constexpr int64_t kLanes = 8;
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// Code that is compiled once for each instruction set. None of them has a fused multiply-add, so the bits are
// equal.
#define BATON_INLINE [[gnu::always_inline]] inline

// Only pointers to lanes cross functions.
BATON_INLINE void LoadLanes(const float* from, Lanes* lanes) { __builtin_memcpy(lanes, from, sizeof *lanes); }
BATON_INLINE void StoreLanes(const Lanes* lanes, float* to) { __builtin_memcpy(to, lanes, sizeof *lanes); }

// to[0, count) -= factor * from[0, count)
BATON_INLINE void Subtract(float factor, const float* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes left, right;
    LoadLanes(to + i, &left);
    LoadLanes(from + i, &right);
    left -= factor * right;
    StoreLanes(&left, to + i);
  }
  for (; i < count; ++i) to[i] -= factor * from[i];
}

// Takes rows [begin, end) of the factor out of row `row` of the matrix [n][n], which is above them.
BATON_INLINE void TakeOutOf(float* h, int64_t n, int64_t begin, int64_t end, int64_t row) {
  for (int64_t k = end - 1; k >= begin; --k) Subtract(h[k * n + row], h + k * n, h + row * n, row + 1);
}

// out[rows][16] = sum over j < depth of lost[row][j] panel[j][16].
template <int kTile>
BATON_INLINE void FeedTile(const float* lost, int64_t stride, const float* panel, int64_t depth, float* out) {
  Lanes sums[kTile][2] = {};
  for (int64_t j = 0; j < depth; ++j) {
    Lanes low, high;
    LoadLanes(panel + j * kLatticeGroup, &low);
    LoadLanes(panel + j * kLatticeGroup + kLanes, &high);
    for (int r = 0; r < kTile; ++r) {
      const float error = lost[r * stride + j];
      sums[r][0] += error * low;
      sums[r][1] += error * high;
    }
  }
  for (int r = 0; r < kTile; ++r) {
    StoreLanes(&sums[r][0], out + r * kLatticeGroup);
    StoreLanes(&sums[r][1], out + r * kLatticeGroup + kLanes);
  }
}
BATON_INLINE void Feed(const float* lost, int64_t stride, int64_t rows, const float* panel, int64_t depth,
                       float* out) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) FeedTile<4>(lost + r * stride, stride, panel, depth, out + r * kLatticeGroup);
  for (; r < rows; ++r) FeedTile<1>(lost + r * stride, stride, panel, depth, out + r * kLatticeGroup);
}
#undef BATON_INLINE

void TakeOutByBaseline(float* h, int64_t n, int64_t begin, int64_t end, int64_t row) {
  TakeOutOf(h, n, begin, end, row);
}
void FeedByBaseline(const float* lost, int64_t stride, int64_t rows, const float* panel, int64_t depth,
                    float* out) {
  Feed(lost, stride, rows, panel, depth, out);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void TakeOutByAvx2(float* h, int64_t n, int64_t begin, int64_t end, int64_t row) {
  TakeOutOf(h, n, begin, end, row);
}
[[gnu::target("avx2")]] void FeedByAvx2(const float* lost, int64_t stride, int64_t rows, const float* panel,
                                        int64_t depth, float* out) {
  Feed(lost, stride, rows, panel, depth, out);
}
#endif

struct Routines {
  decltype(&TakeOutByBaseline) take_out = TakeOutByBaseline;
  decltype(&FeedByBaseline) feed = FeedByBaseline;
};
const Routines& Best() {
  static const Routines best = [] {
    Routines made;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) made = {TakeOutByAvx2, FeedByAvx2};
#endif
    return made;
  }();
  return best;
}

// H = R R^T with R upper triangular, by columns from the last one: row k of the result has R[i][k], i <= k,
// in the place of H[k][i]. False: H is not positive definite.
bool Factorize(std::vector<float>& h, int64_t n, device::ThreadPool& pool) {
  const Routines& best = Best();
  for (int64_t end = n; end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - kBlock);
    for (int64_t k = end - 1; k >= begin; --k) {
      float* const row = h.data() + k * n;
      if (!(row[k] > 0) || !std::isfinite(row[k])) return false;
      const float by = 1 / std::sqrt(row[k]);
      for (int64_t i = 0; i <= k; ++i) row[i] *= by;
      for (int64_t above = k - 1; above >= begin; --above) best.take_out(h.data(), n, k, k + 1, above);
    }
    // Later rows are longer: they begin first.
    pool.ParallelFor(begin, [&](int64_t i) { best.take_out(h.data(), n, begin, end, begin - 1 - i); });
    end = begin;
  }
  return true;
}

}  // namespace

absl::StatusOr<ErrorFeedback> ErrorFeedback::Create(std::vector<float> moments, int64_t cols,
                                                    device::ThreadPool& pool) {
  BATON_CHECK(cols % kLatticeGroup == 0 && std::ssize(moments) == cols * cols) << cols;
  double mean = 0;
  for (int64_t k = 0; k < cols; ++k) mean += moments[static_cast<size_t>(k * cols + k)];
  mean /= static_cast<double>(cols);
  if (!std::ranges::all_of(moments, [](float moment) { return std::isfinite(moment); })) {
    return absl::InvalidArgumentError("activations are not finite, or too large to be squared");
  }
  // In units of the mean, which changes nothing and keeps within floats. Damping makes all of it positive
  // definite, and activations that are all zeros a unit matrix.
  const auto unit = static_cast<float>(mean > 0 ? 1 / mean : 1);
  for (float& moment : moments) moment *= unit;
  for (int64_t k = 0; k < cols; ++k) moments[static_cast<size_t>(k * cols + k)] += kDamping;
  if (!Factorize(moments, cols, pool)) {
    return absl::InvalidArgumentError("activations can't be factorized in float32: use another text");
  }
  ErrorFeedback made(cols);
  const int64_t groups = cols / kLatticeGroup;
  made.feedback_.resize(static_cast<size_t>(kLatticeGroup * kLatticeGroup * groups * (groups + 1) / 2));
  pool.ParallelFor(groups, [&](int64_t g) {
    float* const panel = const_cast<float*>(made.panel(g));
    for (int64_t c = 0; c < kLatticeGroup; ++c) {
      const int64_t k = g * kLatticeGroup + c;
      const float* const row = moments.data() + k * cols;
      for (int64_t j = 0; j < k; ++j) panel[j * kLatticeGroup + c] = row[j] / row[k];
    }
  });
  return made;
}

void ErrorFeedback::Round(std::span<float> rows, std::span<const LatticeRow> out,
                          std::span<float> scales) const {
  const int64_t count = std::ssize(out);
  BATON_CHECK(count <= kRows && std::ssize(rows) == count * cols_ && scales.size() == out.size()) << count;
  std::vector<float> lost(rows.size());
  for (int64_t r = 0; r < count; ++r) {
    const std::span<float> row = rows.subspan(static_cast<size_t>(r * cols_), static_cast<size_t>(cols_));
    const float scale = scales[static_cast<size_t>(r)] = LatticeScale(row);
    const float inverse = scale == 0 ? 0 : 1 / scale;  // a row that becomes zeros loses nothing
    for (float& number : row) number *= inverse;
  }
  float numbers[kRows * kLatticeGroup];
  for (int64_t g = 0; g < cols_ / kLatticeGroup; ++g) {
    const int64_t first = g * kLatticeGroup;
    const float* const within = panel(g) + first * kLatticeGroup;
    Best().feed(lost.data(), cols_, count, panel(g), first, numbers);
    for (int64_t r = 0; r < count; ++r) {
      const float* const weights = rows.data() + r * cols_ + first;
      float* const errors = lost.data() + r * cols_ + first;
      float* const wanted = numbers + r * kLatticeGroup;
      for (int64_t c = 0; c < kLatticeGroup; ++c) wanted[c] += weights[c];
      const LatticeGroup group = BestLatticeGroup({wanted, kLatticeGroup});
      const LatticeRow& row = out[static_cast<size_t>(r)];
      row.factors[static_cast<size_t>(g)] = static_cast<uint8_t>(group.factor);
      row.zeros[static_cast<size_t>(g)] = static_cast<uint8_t>(group.zero);
      for (int64_t c = 0; c < kLatticeGroup; ++c) {
        const uint8_t value = LatticeValue(wanted[c], group);
        row.values[static_cast<size_t>(first + c)] = value;
        errors[c] = weights[c] - static_cast<float>(group.factor * (value - group.zero));
        for (int64_t d = c + 1; d < kLatticeGroup; ++d)
          wanted[d] += errors[c] * within[c * kLatticeGroup + d];
      }
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    const std::span<uint8_t> factors = out[static_cast<size_t>(r)].factors;
    int common = 0;
    for (const uint8_t factor : factors) common = std::gcd(common, static_cast<int>(factor));
    for (uint8_t& factor : factors) factor = static_cast<uint8_t>(factor / common);
    scales[static_cast<size_t>(r)] *= static_cast<float>(common);
  }
}

}  // namespace baton::model
