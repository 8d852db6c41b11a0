#include "common/base/random.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(PhiloxTest, MatchesKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(UniformAtTest, IsAFunctionOfSeedAndPositionAndFillsTheUnitInterval) {
  double sum = 0;
  for (uint64_t position = 0; position < 10000; ++position) {
    const double u = UniformAt(7, position);
    EXPECT_EQ(u, UniformAt(7, position));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_NE(UniformAt(7, 0), UniformAt(8, 0));
}

}  // namespace
}  // namespace baton
