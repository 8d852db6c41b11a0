#include "engine/model/arena.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace baton::model {
namespace {

TEST(ArenaTest, GivesAlignedRowsThatDoNotOverlap) {
  Arena arena;
  for (int round = 0; round < 3; ++round) {
    arena.Reset();
    std::vector<kernels::Matrix> taken;
    for (int64_t cols : {1, 16, 17, 250}) taken.push_back(arena.Take(5, cols));
    for (size_t m = 0; m < taken.size(); ++m) {
      for (int64_t r = 0; r < 5; ++r) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(taken[m].row(r)) % 64, 0u);
        std::fill_n(taken[m].row(r), taken[m].cols, static_cast<float>(m));
      }
    }
    for (size_t m = 0; m < taken.size(); ++m) {
      for (int64_t r = 0; r < 5; ++r) {
        EXPECT_EQ(std::count(taken[m].row(r), taken[m].row(r) + taken[m].cols, static_cast<float>(m)),
                  taken[m].cols);
      }
    }
  }
}

TEST(ArenaTest, GrowsToTheLargestRoundAndStaysThere) {
  Arena arena;
  const auto round = [&arena](int64_t rows) {
    arena.Reset();
    arena.Take(rows, 64);
    arena.Take(rows, 64);
  };
  round(1);
  round(100);
  round(100);
  const int64_t largest = arena.bytes();
  EXPECT_EQ(largest, 2 * 100 * 64 * 4);
  for (int64_t rows : {1, 50, 100, 3}) {
    round(rows);
    EXPECT_EQ(arena.bytes(), largest);
  }
}

TEST(ArenaTest, WhileItHasNotGrownEqualRoundsGetEqualAddresses) {
  Arena arena;
  const auto round = [&arena](int64_t rows) {
    arena.Reset();
    arena.Take(rows, 64);
    return arena.Take(rows, 64).data;
  };
  (void)round(2);
  int64_t growths = arena.growths();
  EXPECT_GT(growths, 0);
  EXPECT_EQ(round(2), round(2));
  growths = arena.growths();
  (void)round(100);
  EXPECT_GT(arena.growths(), growths);
  (void)round(100);  // in one run of memory from here on
  growths = arena.growths();
  void* const large = round(2);
  (void)round(100);
  EXPECT_EQ(round(2), large);
  EXPECT_EQ(arena.growths(), growths);
}

TEST(ArenaTest, GivesMatricesWithoutRows) {
  Arena arena;
  EXPECT_EQ(arena.Take(0, 64).rows, 0);
  EXPECT_EQ(arena.Take(1, 64).rows, 1);
}

}  // namespace
}  // namespace baton::model
