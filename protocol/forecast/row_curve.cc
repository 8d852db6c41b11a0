#include "protocol/forecast/row_curve.h"

#include <algorithm>
#include <cmath>

namespace baton::forecast {
namespace {

// An observation counts half as much after about 35 more of the same number of rows.
constexpr double kForgetting = 0.98;
// The line itself counts like so many observations.
constexpr double kLineWeight = 1;
// Times further off say that the machine was busy, not how kernels are.
constexpr double kFarthest = 2;

}  // namespace

constexpr size_t RowCurve::Place(int64_t rows) {
  return static_cast<size_t>(std::clamp<int64_t>(rows, 1, kRows)) - 1;
}

void RowCurve::Observe(int64_t rows, double seconds, double linear) {
  if (rows < 1 || !(seconds > 0) || !(linear > 0) || !std::isfinite(seconds / linear)) return;
  const size_t at = Place(rows);
  seen_[at] = kForgetting * seen_[at] + 1;
  sums_[at] = kForgetting * sums_[at] + std::clamp(seconds / linear, 1 / kFarthest, kFarthest);
  Fill();
}

void RowCurve::Fill() {
  size_t before = kRows;  // the last one that was seen; kRows: none
  for (size_t at = 0; at < kRows; ++at) {
    if (seen_[at] == 0) continue;
    factors_[at] = (sums_[at] + kLineWeight) / (seen_[at] + kLineWeight);
    const double from = factors_[before == kRows ? at : before];
    const size_t first = before == kRows ? 0 : before + 1;
    for (size_t i = first; i < at; ++i) {
      const double share =
          before == kRows ? 1 : static_cast<double>(i - before) / static_cast<double>(at - before);
      factors_[i] = from + share * (factors_[at] - from);
    }
    before = at;
  }
  for (size_t i = before + 1; i < kRows; ++i) factors_[i] = factors_[before];
}

double RowCurve::Factor(int64_t rows) const { return factors_[Place(rows)]; }

}  // namespace baton::forecast
