#include "common/base/digest.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace baton {
namespace {

TEST(Crc32cTest, MatchesTheRfc3720Vectors) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c("56789", Crc32c("1234")), 0xE3069283u);
}

TEST(Sha256Test, MatchesFips180AndStartsAgainAfterFinish) {
  Sha256 sha;
  for (int run = 0; run < 2; ++run) {
    sha.Update("a");
    sha.Update("bc");
    const Sha256Digest digest = sha.Finish();
    EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()}),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  }
}

}  // namespace
}  // namespace baton
