#include "router/billing/price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/random.h"
#include "router/billing/decimal.h"
#include "tests/seed.h"

namespace baton::router::billing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kGood[] = R"({"currency": "EUR", "models": {"m": {"prompt": "3", "cached": "0.30",
    "written_5m": "3.75", "written_1h": "6", "completion": "15.000001"}}})";

std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  return text.replace(text.find(from), from.size(), to);
}

std::string Refusal(const std::string& text) {
  const auto table = PriceTable::Parse(text, "prices.json");
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(table.status().message());
}

TEST(DecimalTest, ReadsMillionths) {
  EXPECT_EQ(*ParseMillionths("0"), 0);
  EXPECT_EQ(*ParseMillionths("3"), 3'000'000);
  EXPECT_EQ(*ParseMillionths("0.075"), 75'000);
  EXPECT_EQ(*ParseMillionths("0.000001"), 1);
  EXPECT_EQ(*ParseMillionths("12.50"), 12'500'000);
  EXPECT_EQ(*ParseMillionths("999999999.999999"), 999'999'999'999'999);
}

TEST(DecimalTest, RefusesWhatIsNoPlainDecimal) {
  for (const char* text :
       {"",      ".",   "1.", ".5",   "-1",        "+1",         "1e3",      " 1",  "1 ",  "1,5",
        "1.2.3", "0x1", "00", "01.5", "0.0000001", "1000000000", "\xd9\xa3", "1\n", "NaN", "inf"}) {
    const auto parsed = ParseMillionths(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << "'" << text << "'";
    EXPECT_FALSE(parsed.status().message().empty());
  }
}

// Every number of millionths has a text that reads back as it; every text of digits that is accepted is worth
// what long division says.
TEST(DecimalTest, WritesWhatItReads) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto magnitude = static_cast<int>(UniformAt(seed, 3 * i) * 15);
    int64_t most = 10;
    for (int digit = 0; digit < magnitude; ++digit) most *= 10;
    const auto value = static_cast<int64_t>(UniformAt(seed, 3 * i + 1) * static_cast<double>(most));
    const std::string text = FormatMillionths(value);
    ASSERT_EQ(*ParseMillionths(text), value) << text;
    // Zeros behind the last digit change nothing, as long as there are six digits at most.
    const size_t point = text.find('.');
    const size_t behind = point == std::string::npos ? 0 : text.size() - point - 1;
    if (behind > 0 && behind < 6) {
      ASSERT_EQ(*ParseMillionths(text + "0"), value) << text;
    }
  }
}

// Bytes of all kinds: what is accepted is canonical up to zeros at its end.
TEST(DecimalTest, AcceptsNothingElse) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const std::string_view alphabet = "0123456789..-+e ,\n";
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (int left = static_cast<int>(UniformAt(seed, draws++) * 10); left > 0; --left) {
      text += alphabet[static_cast<size_t>(UniformAt(seed, draws++) * static_cast<double>(alphabet.size()))];
    }
    const auto value = ParseMillionths(text);
    if (!value.ok()) continue;
    ++accepted;
    ASSERT_GE(*value, 0);
    std::string bare = text;
    if (bare.find('.') != std::string::npos) {
      bare.erase(bare.find_last_not_of('0') + 1);
      if (bare.back() == '.') bare.pop_back();
    }
    ASSERT_EQ(FormatMillionths(*value), bare) << "read from " << text;
  }
  EXPECT_GT(accepted, 1000) << "the draws are never decimals";
}

TEST(DecimalTest, AmountsShowAtLeastTwoDigits) {
  EXPECT_EQ(FormatAmount(0, 0), "0.00");
  EXPECT_EQ(FormatAmount(12, 500'000'000'000), "12.50");
  EXPECT_EQ(FormatAmount(0, 1), "0.000000000001");
}

TEST(PriceTest, ReadsTheFile) {
  const auto table = PriceTable::Parse(kGood, "prices.json");
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_NE(table->Find("m"), nullptr);
  EXPECT_EQ(*table->Find("m"), (Price{.currency = "EUR",
                                      .prompt = 3'000'000,
                                      .cached = 300'000,
                                      .written_5m = 3'750'000,
                                      .written_1h = 6'000'000,
                                      .completion = 15'000'001}));
  EXPECT_EQ(table->Find("other"), nullptr) << "no price is assumed";
}

TEST(PriceTest, AnErrorNamesTheFileTheFieldAndTheReason) {
  EXPECT_THAT(Refusal("{\n\n}x"), AllOf(HasSubstr("prices.json"), HasSubstr("line 3")));
  EXPECT_EQ(Refusal("[]"), "prices.json: not an object");
  EXPECT_EQ(Refusal(R"({"models": {}})"), "prices.json: field \"currency\" is missing");
  EXPECT_EQ(Refusal(R"({"currency": "EUR"})"), "prices.json: field \"models\" is missing");
  EXPECT_THAT(Refusal(With("EUR", "euro")), HasSubstr("field \"currency\" is not the code of a currency"));
  EXPECT_THAT(Refusal(With("\"0.30\"", "0.30")),
              HasSubstr("prices.json: models.\"m\": field \"cached\" is 0.3, not text: write the price in"));
  EXPECT_THAT(Refusal(With("\"3.75\"", "\"3,75\"")),
              HasSubstr("models.\"m\": field \"written_5m\" is \"3,75\" and has characters besides digits"));
  EXPECT_THAT(Refusal(With("\"cached\": \"0.30\",", "")),
              HasSubstr("models.\"m\": field \"cached\" is missing"));
  EXPECT_THAT(Refusal(With("cached", "cashed")),
              HasSubstr("models.\"m\": field \"cashed\" is not known here"));
  EXPECT_THAT(Refusal(With("models", "model")), HasSubstr("field \"model\" is not known here"));
  EXPECT_THAT(Refusal(With("\"cached\": \"0.30\"", "\"prompt\": \"0.30\"")), HasSubstr("twice"));
}

TEST(PriceTest, ACostIsExactToThePicounit) {
  const Price price = *PriceTable::Parse(kGood, "prices.json")->Find("m");
  EXPECT_EQ(CostOf(price, {}), 0);
  // 100 x 3 + 1000 x 0.3 + 10 x 3.75 + 1 x 6 + 7 x 15.000001, each per million.
  EXPECT_EQ(CostOf(price, {.decode_cached = 900,
                           .prefill_cached = 100,
                           .written_5m = 10,
                           .written_1h = 1,
                           .plain = 100,
                           .completion = 7,
                           .thinking = 7}),
            300'000'000 + 300'000'000 + 37'500'000 + 6'000'000 + 105'000'007);
}

// The cost of two counts is the cost of their sum: choices add up to their request, requests to the ledger.
TEST(PriceTest, CostsAddUp) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](double below) { return static_cast<int64_t>(UniformAt(seed, draws++) * below); };
  const auto counts = [&] {
    return TokenCounts{.decode_cached = draw(1e6),
                       .prefill_cached = draw(1e6),
                       .written_5m = draw(1e6),
                       .written_1h = draw(1e6),
                       .plain = draw(1e6),
                       .completion = draw(1e6)};
  };
  for (int i = 0; i < 1000; ++i) {
    const Price price{.prompt = draw(1e9),
                      .cached = draw(1e9),
                      .written_5m = draw(1e9),
                      .written_1h = draw(1e9),
                      .completion = draw(1e9)};
    const TokenCounts a = counts(), b = counts();
    TokenCounts both = a;
    both.decode_cached += b.decode_cached;
    both.prefill_cached += b.prefill_cached;
    both.written_5m += b.written_5m;
    both.written_1h += b.written_1h;
    both.plain += b.plain;
    both.completion += b.completion;
    ASSERT_EQ(CostOf(price, a) + CostOf(price, b), CostOf(price, both));
  }
}

TEST(PriceTest, APriceThatCouldOverflowIsRefused) {
  Price price{.currency = "VND", .completion = 2'000'000 * int64_t{1'000'000}};
  EXPECT_TRUE(CheckPrice(price, 1'000'000).ok());
  EXPECT_TRUE(CheckPrice({}, std::numeric_limits<int64_t>::max()).ok());
  const absl::Status refused = CheckPrice(price, 5'000'000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2000000 VND per million tokens"));
  // One token less than what overflows.
  const int64_t most = std::numeric_limits<int64_t>::max() / price.completion;
  EXPECT_TRUE(CheckPrice(price, most).ok());
  EXPECT_FALSE(CheckPrice(price, most + 1).ok());
}

}  // namespace
}  // namespace baton::router::billing
