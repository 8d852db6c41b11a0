#include "common/base/bunching.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(BunchingTest, AnEvenStreamHasNone) {
  Bunching bunching;
  EXPECT_EQ(bunching.share(), 0);
  for (int i = 0; i < 100; ++i) bunching.Add(i % 2 == 0 ? 0.008 : 0.012);
  EXPECT_EQ(bunching.share(), 0);
  EXPECT_EQ(bunching.gaps(), 100);
}

TEST(BunchingTest, OfFourThatTravelTogetherThreeCount) {
  Bunching bunching;
  for (int i = 0; i < 400; ++i) bunching.Add(i % 4 == 0 ? 0.004 : 20e-6);
  EXPECT_DOUBLE_EQ(bunching.share(), 0.75);
}

}  // namespace
}  // namespace baton
