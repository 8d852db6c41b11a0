#include "protocol/forecast/row_curve.h"

#include <gtest/gtest.h>

#include <limits>

namespace baton::forecast {
namespace {

TEST(RowCurveTest, TheLineUntilAStepWasSeen) {
  const RowCurve curve;
  for (const int64_t rows : {0, 1, 7, 96, 1000}) EXPECT_EQ(curve.Factor(rows), 1) << rows;
}

TEST(RowCurveTest, BetweenRowsThatWereSeenWhatLiesBetween) {
  RowCurve curve;
  for (int i = 0; i < 100; ++i) {
    curve.Observe(4, 1.2, 1);
    curve.Observe(8, 0.8, 1);
  }
  EXPECT_NEAR(curve.Factor(4), 1.2, 0.01);
  EXPECT_NEAR(curve.Factor(6), 1.0, 0.01);
  EXPECT_NEAR(curve.Factor(8), 0.8, 0.01);
  EXPECT_EQ(curve.Factor(1), curve.Factor(4));
  EXPECT_EQ(curve.Factor(50), curve.Factor(8));
  EXPECT_EQ(curve.Factor(1000), curve.Factor(8));
}

TEST(RowCurveTest, ABusyMachineIsNoCurve) {
  RowCurve curve;
  for (int i = 0; i < 30; ++i) curve.Observe(3, 1, 1);
  curve.Observe(3, 50, 1);
  EXPECT_LT(curve.Factor(3), 1.06);
  curve.Observe(3, std::numeric_limits<double>::quiet_NaN(), 1);
  curve.Observe(3, 1, 0);
  curve.Observe(0, 1, 1);
  EXPECT_LT(curve.Factor(3), 1.06);
}

}  // namespace
}  // namespace baton::forecast
