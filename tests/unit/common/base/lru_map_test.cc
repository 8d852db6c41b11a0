#include "common/base/lru_map.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(LruMapTest, TheOneThatWasAskedForLongestAgoGoes) {
  LruMap<int> map(2);
  map.Put("a", 1);
  map.Put("b", 2);
  ASSERT_NE(map.Find("a"), nullptr);
  map.Put("c", 3);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.Find("b"), nullptr);
  ASSERT_NE(map.Find("a"), nullptr);
  EXPECT_EQ(*map.Find("a"), 1);
  ASSERT_NE(map.Find("c"), nullptr);
  EXPECT_EQ(*map.Find("c"), 3);
}

TEST(LruMapTest, AValueThatIsPutAgainTakesThePlaceOfTheOld) {
  LruMap<int> map(2);
  map.Put("a", 1);
  map.Put("b", 2);
  map.Put("a", 3);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(*map.Find("a"), 3);
  map.Put("c", 4);
  EXPECT_EQ(map.Find("b"), nullptr) << "to put a value is to ask for it";
}

// Keys outlive what they were made of, short ones too.
TEST(LruMapTest, ManyKeysComeAndGo) {
  LruMap<size_t> map(8);
  for (size_t i = 0; i < 1000; ++i) {
    map.Put(std::string(i % 40, 'k') + std::to_string(i), i);
    if (i < 8) continue;
    EXPECT_EQ(map.size(), 8u);
    for (size_t j = i - 7; j <= i; ++j) {
      const std::string key = std::string(j % 40, 'k') + std::to_string(j);
      ASSERT_NE(map.Find(key), nullptr) << key;
      EXPECT_EQ(*map.Find(key), j);
    }
  }
}

}  // namespace
}  // namespace baton
