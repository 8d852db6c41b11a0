#include "common/base/fair_lines.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace baton {
namespace {

bool Push(FairLines<std::string>& lines, const std::string& owner, std::string item) {
  return lines.Push(owner, item);
}

std::string PopAll(FairLines<std::string>& lines) {
  std::string all;
  while (!lines.empty()) all += lines.Pop() + " ";
  return all;
}

TEST(FairLinesTest, OwnersTakeTurns) {
  FairLines<std::string> lines;
  for (const char* const item : {"a1", "a2", "a3", "a4"}) ASSERT_TRUE(Push(lines, "a", item));
  ASSERT_TRUE(Push(lines, "b", "b1"));
  ASSERT_TRUE(Push(lines, "c", "c1") && Push(lines, "c", "c2"));
  EXPECT_EQ(PopAll(lines), "a1 b1 c1 a2 c2 a3 a4 ");
}

TEST(FairLinesTest, WhoeverWasServedIsBehindTheOthers) {
  FairLines<std::string> lines;
  ASSERT_TRUE(Push(lines, "a", "a1") && Push(lines, "b", "b1"));
  EXPECT_EQ(lines.Pop(), "a1");
  ASSERT_TRUE(Push(lines, "a", "a2"));
  EXPECT_EQ(PopAll(lines), "b1 a2 ");
}

TEST(FairLinesTest, AnOwnerHasAsMuchAsIsLeftFree) {
  FairLines<std::string> lines(8);
  int a = 0, b = 0, c = 0;
  while (Push(lines, "a", "a")) ++a;
  while (Push(lines, "b", "b")) ++b;
  while (Push(lines, "c", "c")) ++c;
  EXPECT_EQ(a, 4);
  EXPECT_EQ(b, 2);
  EXPECT_EQ(c, 1);
  lines.Pop();
  EXPECT_TRUE(Push(lines, "d", "d"));
}

TEST(FairLinesTest, WhatFindsNoRoomStaysAsItWas) {
  FairLines<std::unique_ptr<int>> lines(1);
  auto first = std::make_unique<int>(1), second = std::make_unique<int>(2);
  EXPECT_TRUE(lines.Push("a", first));
  EXPECT_EQ(first, nullptr);
  EXPECT_FALSE(lines.Push("b", second));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*lines.Pop(), 1);
  EXPECT_TRUE(lines.empty());
}

}  // namespace
}  // namespace baton
