#include "cli/show/quantity.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

TEST(QuantityTest, SecondsHaveThreeDigitsThatMatter) {
  EXPECT_EQ(ShowSeconds(0), "0 ms");
  EXPECT_EQ(ShowSeconds(0.000'843), "843 us");
  EXPECT_EQ(ShowSeconds(0.001'234), "1.23 ms");
  EXPECT_EQ(ShowSeconds(0.012'34), "12.3 ms");
  EXPECT_EQ(ShowSeconds(0.123'4), "123 ms");
  EXPECT_EQ(ShowSeconds(0.999'9), "1.00 s");
  EXPECT_EQ(ShowSeconds(1.534), "1.53 s");
  EXPECT_EQ(ShowSeconds(250), "4 min 10 s");
  EXPECT_EQ(ShowSeconds(7260), "2 h 1 min");
  EXPECT_EQ(ShowSeconds(-0.5), "-500 ms");
}

TEST(QuantityTest, BytesCountsAndMagnitudes) {
  EXPECT_EQ(ShowBytes(0), "0 B");
  EXPECT_EQ(ShowBytes(1023), "1023 B");
  EXPECT_EQ(ShowBytes(1536), "1.50 KiB");
  EXPECT_EQ(ShowBytes(int64_t{2} << 30), "2 GiB");
  EXPECT_EQ(ShowCount(0), "0");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowCount(1000), "1,000");
  EXPECT_EQ(ShowCount(1234567), "1,234,567");
  EXPECT_EQ(ShowCount(-123), "-123");
  EXPECT_EQ(ShowCount(-1234), "-1,234");
  EXPECT_EQ(ShowMagnitude(1.24e9), "1.24 B");
  EXPECT_EQ(ShowMagnitude(3.5e8), "350 M");
}

TEST(QuantityTest, ParsesDurations) {
  EXPECT_EQ(*ParseDuration("300ms"), absl::Milliseconds(300));
  EXPECT_EQ(*ParseDuration("2"), absl::Seconds(2));
  EXPECT_EQ(*ParseDuration("2 s"), absl::Seconds(2));
  EXPECT_EQ(*ParseDuration("1.5m"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("1h"), absl::Hours(1));
  for (const char* bad : {"", "soon", "-1s", "1 fortnight", "inf", "nan", "1e300", "1s2"}) {
    EXPECT_EQ(ParseDuration(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(QuantityTest, ParsesSizes) {
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(*ParseBytes("1.5 gib"), int64_t{3} << 29);
  EXPECT_EQ(*ParseBytes("1GB"), 1'000'000'000);
  for (const char* bad : {"", "much", "-1", "1 parsec", "1e40TiB"}) {
    EXPECT_EQ(ParseBytes(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace baton::cli
