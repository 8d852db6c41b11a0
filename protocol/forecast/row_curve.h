// RowCurve: how far a step of so many rows is from what a linear cost says. Kernels work in tiles, so a step
// takes longer at some numbers of rows and hardly longer between them; a straight line is wrong by a few
// percent there, which is what decides whether one more row is worth it. Learnt from every step of decode
// rows alone. Plain data, one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton::forecast {

class RowCurve {
 public:
  RowCurve() { factors_.fill(1); }

  // A step of so many rows took `seconds` and was expected to take `linear`.
  void Observe(int64_t rows, double seconds, double linear);
  // The factor of the linear cost of a step of so many rows: interpolated between numbers of rows that were
  // seen, that of the nearest beyond them.
  double Factor(int64_t rows) const;

 private:
  static constexpr size_t kRows = 96;  // more rows than that are alike
  static constexpr size_t Place(int64_t rows);
  void Fill();

  std::array<double, kRows> seen_{};  // observations, as they count now
  std::array<double, kRows> sums_{};  // of their factors
  std::array<double, kRows> factors_{};
};

}  // namespace baton::forecast
