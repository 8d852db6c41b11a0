#include "gateway/http/budget.h"

#include <gtest/gtest.h>

namespace baton::gateway::http {
namespace {

TEST(BudgetTest, APartCountsInTheWhole) {
  const auto whole = std::make_shared<Budget>(100);
  const auto part = std::make_shared<Budget>(40, whole);
  Held in_part(part), in_whole(whole);
  EXPECT_TRUE(in_part.Become(40));
  EXPECT_FALSE(in_part.Become(41)) << "the part has no room";
  EXPECT_EQ(whole->held(), 40u);
  EXPECT_TRUE(in_whole.Become(60));
  EXPECT_TRUE(in_part.Become(30));
  EXPECT_TRUE(in_whole.Become(70));
  EXPECT_FALSE(in_part.Become(40)) << "the whole has no room";
  EXPECT_EQ(part->held(), 30u);
  EXPECT_EQ(whole->held(), 100u);
}

TEST(BudgetTest, WhatMovesIsHeldOnce) {
  const auto whole = std::make_shared<Budget>(100);
  const auto part = std::make_shared<Budget>(40, whole);
  {
    Held held(part);
    EXPECT_TRUE(held.Become(40));
    held.MoveTo(whole);
    EXPECT_EQ(part->held(), 0u);
    EXPECT_EQ(whole->held(), 40u);
    EXPECT_TRUE(held.Become(90)) << "the part's limit is no longer its own";
  }
  EXPECT_EQ(whole->held(), 0u);
}

}  // namespace
}  // namespace baton::gateway::http
