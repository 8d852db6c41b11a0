#include "protocol/block_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/container/flat_hash_set.h"

namespace baton::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> TokensFrom(int count, int first, int step = 1) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId(first + step * i));
  return tokens;
}

// The expected values are Python's:
//   import hashlib, struct
//   root = lambda f, s: hashlib.sha256(b"baton/kv/root/1" + struct.pack("<Q", len(f)) + f
//                                      + struct.pack("<Q", len(s)) + s).digest()[:16]
//   child = lambda parent, tokens: hashlib.sha256(parent + struct.pack("<16i", *tokens)).digest()[:16]
//   r = root(b"model", b"tenant"); a = child(r, range(16)); b = child(a, [2**31 - 1 - i for i in range(16)])
//   for hash in r, a, b, root(b"", b""), root(b"modelt", b"enant"): print(hash.hex())
TEST(BlockHashTest, MatchesPythonsHashlib) {
  const BlockHash root = RootHash("model", TenantSalt("tenant"));
  EXPECT_EQ(root.ToHex(), "1cc11952b3f4cc20fc4a70e8d27feb57");
  const BlockHash first = ChildHash(root, TokensFrom(16, 0));
  EXPECT_EQ(first.ToHex(), "3369bac170ec7071442d34fa7bf38b27");
  EXPECT_EQ(ChildHash(first, TokensFrom(16, 2147483647, -1)).ToHex(), "9f369c16d275a0c6b789d5bb35c02f70");
  EXPECT_EQ(RootHash("", TenantSalt("")).ToHex(), "0c4d3a6501c7b6a688c6700c2dfcef6d");
  EXPECT_EQ(RootHash("modelt", TenantSalt("enant")).ToHex(), "445cac856480467d531bb3312c2c5cb4");
}

TEST(BlockHashTest, ChainHoldsTheFullBlocksOnly) {
  const BlockHash root = RootHash("model", TenantSalt("tenant"));
  EXPECT_THAT(HashChain(root, TokensFrom(0, 0)), IsEmpty());
  EXPECT_THAT(HashChain(root, TokensFrom(15, 0)), IsEmpty());
  const BlockHash first = ChildHash(root, TokensFrom(16, 0));
  const BlockHash second = ChildHash(first, TokensFrom(16, 16));
  EXPECT_THAT(HashChain(root, TokensFrom(16, 0)), ElementsAre(first));
  EXPECT_THAT(HashChain(root, TokensFrom(47, 0)), ElementsAre(first, second));
}

TEST(BlockHashTest, OneTokenChangesItsBlockAndAllAfterIt) {
  const BlockHash root = RootHash("model", TenantSalt("tenant"));
  std::vector<TokenId> tokens = TokensFrom(64, 100);
  const auto before = HashChain(root, tokens);
  tokens[20] = TokenId(7);
  const auto after = HashChain(root, tokens);
  EXPECT_EQ(before[0], after[0]);
  for (int i = 1; i < 4; ++i) EXPECT_NE(before[i], after[i]) << "block " << i;
}

TEST(BlockHashTest, NoBlockOfOneTenantOrModelIsAnothers) {
  absl::flat_hash_set<BlockHash> all;
  size_t count = 0;
  for (const char* model : {"model", "model2", ""}) {
    for (const char* salt : {"a", "b", "", "ab"}) {
      for (const BlockHash& hash : HashChain(RootHash(model, TenantSalt(salt)), TokensFrom(160, 1))) {
        EXPECT_TRUE(all.insert(hash).second) << model << " / " << salt;
        ++count;
      }
    }
  }
  EXPECT_EQ(all.size(), count);
}

TEST(BlockHashTest, GoesOverTheWireAndBack) {
  const BlockHash hash = RootHash("model", TenantSalt("tenant"));
  EXPECT_EQ(BlockHash::FromBytes(std::string(hash.bytes())), hash);
  EXPECT_NE(hash, BlockHash());
  EXPECT_DEATH(BlockHash::FromBytes("short"), "CHECK failed");
  EXPECT_DEATH(ChildHash(hash, TokensFrom(15, 0)), "CHECK failed");
}

}  // namespace
}  // namespace baton::kv
