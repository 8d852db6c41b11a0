#include "text/config/ends_digest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/digest.h"

namespace baton::model {
namespace {

std::string Of(const std::vector<int32_t>& ids) {
  std::vector<TokenId> ends;
  for (const int32_t id : ids) ends.emplace_back(id);
  return EndsDigest(ends);
}

TEST(EndsDigestTest, IsThatOfTheSet) {
  EXPECT_EQ(Of({2, 7}), Of({7, 2, 7}));
  EXPECT_NE(Of({2, 7}), Of({2}));
  EXPECT_NE(Of({2}), Of({3}));
  EXPECT_NE(Of({2}), Of({}));
  EXPECT_NE(Of({2}), Of({2 << 8}));
  EXPECT_EQ(Of({}), Sha256Of(""));
  EXPECT_EQ(Of({1, 0x01020304}), Sha256Of(std::string("\1\0\0\0\4\3\2\1", 8)));
}

}  // namespace
}  // namespace baton::model
