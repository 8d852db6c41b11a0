#include "protocol/client/token_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::protocol {
namespace {

using ::testing::ElementsAre;

TEST(TokenIdsTest, GoThereAndBack) {
  const std::vector<TokenId> tokens = {TokenId(0), TokenId(7), TokenId(2'147'483'647)};
  TokenIds ids;
  ids.Add(3);
  AddTokens(tokens, &ids);
  EXPECT_THAT(ids, ElementsAre(3, 0, 7, 2'147'483'647));
  EXPECT_THAT(TokensOf(ids), ElementsAre(TokenId(3), TokenId(0), TokenId(7), TokenId(2'147'483'647)));
}

TEST(TokenIdsTest, TheFirstOutsideTheVocabularyIsNamed) {
  TokenIds ids;
  EXPECT_TRUE(CheckTokenIds(ids, 10, "ids").ok());
  for (const int32_t id : {0, 9}) ids.Add(id);
  EXPECT_TRUE(CheckTokenIds(ids, 10, "ids").ok());
  ids.Add(10);
  ids.Add(-1);
  EXPECT_EQ(CheckTokenIds(ids, 10, "ids").message(), "ids[2]: token id 10 is outside the vocabulary of 10");
  EXPECT_EQ(CheckTokenIds(ids, 11, "ids").message(), "ids[3]: token id -1 is outside the vocabulary of 11");
}

}  // namespace
}  // namespace baton::protocol
