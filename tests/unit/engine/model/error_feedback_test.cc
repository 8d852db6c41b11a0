#include "engine/model/error_feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace baton::model {
namespace {

using testing::HasSubstr;

// Columns of two blocks of the factorization and a part of one.
constexpr int64_t kCols = 176;

std::vector<float> Drawn(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(static_cast<size_t>(count));
  for (float& number : made) number = normal(random);
  return made;
}

// X^T X of `rows` activations whose columns depend on each other: walks, of which each column adds a step.
std::vector<float> MomentsOfWalks(int64_t rows, int64_t cols) {
  std::vector<float> moments(static_cast<size_t>(cols * cols));
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> row = Drawn(cols, static_cast<uint32_t>(100 + r));
    for (size_t k = 1; k < row.size(); ++k) row[k] += 0.9f * row[k - 1];
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t k = 0; k < cols; ++k) {
        moments[static_cast<size_t>(i * cols + k)] +=
            row[static_cast<size_t>(i)] * row[static_cast<size_t>(k)];
      }
    }
  }
  return moments;
}

// H of error_feedback.h, and its A by the definition, in doubles.
struct Plain {
  std::vector<double> h, a;
  int64_t n;

  Plain(const std::vector<float>& moments, int64_t cols) : h(moments.begin(), moments.end()), a(h), n(cols) {
    double mean = 0;
    for (int64_t k = 0; k < n; ++k) mean += at(h, k, k) / static_cast<double>(n);
    for (int64_t k = 0; k < n; ++k) at(h, k, k) += 0.01 * mean;
    // From the last column on: D[k] is what is left on the diagonal, and A's column k what is above it.
    a = h;
    for (int64_t k = n - 1; k >= 0; --k) {
      const double d = at(a, k, k);
      for (int64_t i = 0; i < k; ++i) at(a, i, k) /= d;
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < k; ++j) at(a, i, j) -= at(a, i, k) * d * at(a, j, k);
      }
    }
  }
  double& at(std::vector<double>& m, int64_t i, int64_t k) const { return m[static_cast<size_t>(i * n + k)]; }
  double At(const std::vector<double>& m, int64_t i, int64_t k) const {
    return m[static_cast<size_t>(i * n + k)];
  }
  double LossOf(const std::vector<double>& lost) const {
    double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        loss += lost[static_cast<size_t>(i)] * At(h, i, k) * lost[static_cast<size_t>(k)];
      }
    }
    return loss;
  }
};

struct RoundedRow {
  std::vector<uint8_t> factors, zeros, values;
  float scale = -1;

  explicit RoundedRow(int64_t cols)
      : factors(static_cast<size_t>(LatticeGroups(cols))),
        zeros(factors.size()),
        values(static_cast<size_t>(cols)) {}
  LatticeRow row() { return {factors, zeros, values}; }
  int Integer(size_t c, int value) const {
    return factors[c / kLatticeGroup] * (value - zeros[c / kLatticeGroup]);
  }
  double Number(size_t c) const { return double{scale} * Integer(c, values[c]); }
  bool operator==(const RoundedRow&) const = default;
};

std::vector<RoundedRow> Round(const ErrorFeedback& feedback, std::vector<float> rows) {
  std::vector<RoundedRow> made(rows.size() / static_cast<size_t>(feedback.cols()),
                               RoundedRow(feedback.cols()));
  std::vector<LatticeRow> out;
  for (RoundedRow& row : made) out.push_back(row.row());
  std::vector<float> scales(made.size());
  feedback.Round(rows, out, scales);
  for (size_t r = 0; r < made.size(); ++r) made[r].scale = scales[r];
  return made;
}

RoundedRow Nearest(std::span<const float> row) {
  RoundedRow made(std::ssize(row));
  made.scale = RoundToLattice(row, made.row());
  return made;
}

ErrorFeedback Make(std::vector<float> moments, int64_t cols, int threads = 1) {
  device::ThreadPool pool(threads);
  auto made = ErrorFeedback::Create(std::move(moments), cols, pool);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(ErrorFeedbackTest, EachColumnIsTheNearestToWhatThoseBeforeItLeave) {
  const std::vector<float> moments = MomentsOfWalks(400, kCols);
  const Plain plain(moments, kCols);
  const std::vector<float> weights = Drawn(7 * kCols, 1);
  const std::vector<RoundedRow> rounded = Round(Make(moments, kCols), weights);
  for (size_t r = 0; r < rounded.size(); ++r) {
    const float* const row = weights.data() + r * kCols;
    for (size_t k = 0; k < kCols; ++k) {
      double wanted = row[k];
      for (size_t j = 0; j < k; ++j) {
        wanted += (row[j] - rounded[r].Number(j)) *
                  plain.At(plain.a, static_cast<int64_t>(j), static_cast<int64_t>(k));
      }
      double least = std::numeric_limits<double>::infinity();
      for (int value = 0; value < 16; ++value) {
        const int integer = rounded[r].Integer(k, value);
        if (std::abs(integer) > 127) continue;
        least = std::min(least, std::abs(wanted - double{rounded[r].scale} * integer));
      }
      ASSERT_LE(std::abs(rounded[r].Integer(k, rounded[r].values[k])), 127);
      ASSERT_LE(std::abs(wanted - rounded[r].Number(k)), least + 1e-4) << r << ", " << k;
    }
  }
}

TEST(ErrorFeedbackTest, ItLosesLessOfProductsThanTheNearestNumbers) {
  const std::vector<float> moments = MomentsOfWalks(400, kCols);
  const Plain plain(moments, kCols);
  const std::vector<float> weights = Drawn(16 * kCols, 2);
  const std::vector<RoundedRow> rounded = Round(Make(moments, kCols), weights);
  double fed_back = 0, nearest = 0;
  for (size_t r = 0; r < rounded.size(); ++r) {
    const std::span row(weights.data() + r * kCols, kCols);
    const RoundedRow plainly = Nearest(row);
    std::vector<double> lost, lost_plainly;
    for (size_t k = 0; k < kCols; ++k) {
      lost.push_back(row[k] - rounded[r].Number(k));
      lost_plainly.push_back(row[k] - plainly.Number(k));
    }
    fed_back += plain.LossOf(lost);
    nearest += plain.LossOf(lost_plainly);
  }
  EXPECT_LT(fed_back, 0.3 * nearest);
}

TEST(ErrorFeedbackTest, ColumnsThatDoNotDependOnEachOtherAreRoundedToTheNearest) {
  std::vector<float> moments(kCols * kCols), zeros(moments.size());
  for (size_t k = 0; k < kCols; ++k) moments[k * kCols + k] = static_cast<float>(k % 5);
  const std::vector<float> weights = Drawn(3 * kCols, 3);
  // Activations of a layer that gives nothing, too.
  for (const std::vector<float>& each : {moments, zeros}) {
    const std::vector<RoundedRow> rounded = Round(Make(each, kCols), weights);
    for (size_t r = 0; r < rounded.size(); ++r) {
      EXPECT_EQ(rounded[r], Nearest(std::span(weights.data() + r * kCols, kCols))) << r;
    }
  }
}

TEST(ErrorFeedbackTest, ARowIsTheSameWithOthersAndWithAnyNumberOfThreads) {
  const std::vector<float> moments = MomentsOfWalks(50, kCols);
  const std::vector<float> weights = Drawn(ErrorFeedback::kRows * kCols, 4);
  const std::vector<RoundedRow> together = Round(Make(moments, kCols), weights);
  EXPECT_EQ(Round(Make(moments, kCols, 3), weights), together);
  const ErrorFeedback feedback = Make(moments, kCols);
  for (size_t r = 0; r < together.size(); ++r) {
    const auto row = weights.begin() + static_cast<int64_t>(r) * kCols;
    EXPECT_EQ(Round(feedback, {row, row + kCols}), std::vector{together[r]}) << r;
  }
}

TEST(ErrorFeedbackTest, RowsOfNextToNothingAreZerosAndTinyOrHugeActivationsGiveTheSame) {
  const std::vector<float> moments = MomentsOfWalks(50, kCols);
  std::vector<float> weights = Drawn(2 * kCols, 5);
  for (size_t k = 0; k < kCols; ++k) weights[k] *= 0x1p-120f;
  const std::vector<RoundedRow> rounded = Round(Make(moments, kCols), weights);
  EXPECT_EQ(rounded[0].scale, 0);
  EXPECT_GT(rounded[1].scale, 0);
  for (const float by : {0x1p-60f, 0x1p60f}) {
    std::vector<float> scaled = moments;
    for (float& moment : scaled) moment *= by;
    EXPECT_EQ(Round(Make(scaled, kCols), weights), rounded) << by;
  }
}

TEST(ErrorFeedbackTest, MomentsThatAreNoneAreRefused) {
  device::ThreadPool pool(1);
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {size_t{0}, size_t{kCols + 3}}) {
      std::vector<float> moments = MomentsOfWalks(50, kCols);
      moments[at] = value;
      if (at != 0) moments[3 * kCols + 1] = value;
      const auto made = ErrorFeedback::Create(moments, kCols, pool);
      EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << value << " " << at;
      EXPECT_THAT(std::string(made.status().message()), HasSubstr("not finite"));
    }
  }
  std::vector<float> moments(kCols * kCols);
  for (size_t k = 0; k < kCols; ++k) moments[k * kCols + k] = 1;
  moments[1] = moments[kCols] = 2;
  const auto made = ErrorFeedback::Create(moments, kCols, pool);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("can't be factorized"));
}

}  // namespace
}  // namespace baton::model
