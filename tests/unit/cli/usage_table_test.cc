#include "cli/usage/usage_table.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using router::billing::LedgerSheet;
using router::billing::LedgerSums;

LedgerSums UsedOf(int64_t cached, int64_t picos) {
  LedgerSums sums;
  sums.requests = 2;
  sums.failed = 1;
  sums.tokens = {.decode_cached = cached, .plain = 5, .completion = 7, .thinking = 3};
  sums.AddCost(picos);
  return sums;
}

LedgerSheet Ledger() {
  return {{{.day = "2026-11-21", .tenant = "a", .key = "k1", .model = "m", .currency = "EUR"},
           UsedOf(16, 999'999'999'999)},
          {{.day = "2026-11-22", .tenant = "a", .key = "k2", .model = "m", .currency = "EUR"}, UsedOf(32, 1)},
          {{.day = "2026-11-22", .tenant = "b", .key = "", .model = "m", .currency = ""}, UsedOf(0, 0)}};
}

TEST(UsageTableTest, GroupsAndAdds) {
  const LedgerSheet grouped = GroupUsage(Ledger(), UsageGroupingOf({"tenant"}));
  ASSERT_EQ(grouped.size(), 2u);
  const LedgerSums& a =
      grouped.begin()->second.requests == 4 ? grouped.begin()->second : std::next(grouped.begin())->second;
  EXPECT_EQ(a.requests, 4);
  EXPECT_EQ(a.tokens.cached(), 48);
  EXPECT_EQ(a.units, 1) << "picounits carry";
  EXPECT_EQ(a.picos, 0);
}

TEST(UsageTableTest, CurrenciesAreNeverAdded) {
  EXPECT_EQ(GroupUsage(Ledger(), {}).size(), 2u) << "EUR, and what has no price";
}

TEST(UsageTableTest, PrintsATable) {
  const UsageGrouping grouping = UsageGroupingOf({"day", "key"});
  EXPECT_EQ(
      UsageTable(GroupUsage(Ledger(), grouping), grouping),
      R"(day         key  requests  failed  prompt  cached  written 5m  written 1h  plain  completion  thinking                cost
2026-11-21  k1          2       1      21      16           0           0      5           7         3  0.999999999999 EUR
2026-11-22  -           2       1       5       0           0           0      5           7         3                   -
2026-11-22  k2          2       1      37      32           0           0      5           7         3  0.000000000001 EUR
)");
  EXPECT_EQ(UsageTable({}, grouping), "No request has used anything.\n");
}

TEST(UsageTableTest, PrintsJson) {
  const UsageGrouping grouping = UsageGroupingOf({"tenant"});
  const auto json = nlohmann::json::parse(UsageJson(GroupUsage(Ledger(), grouping), grouping));
  ASSERT_EQ(json.size(), 2u);
  for (const auto& row : json) {
    EXPECT_EQ(row["prompt_tokens"].get<int>(),
              row["cached_tokens"].get<int>() + row["plain_tokens"].get<int>());
    EXPECT_EQ(row["tenant"] == "a", row.contains("cost"));
    EXPECT_FALSE(row.contains("day"));
    if (row["tenant"] == "a") {
      EXPECT_EQ(row["cost"], "1.00");
    }
  }
  EXPECT_EQ(nlohmann::json::parse(UsageJson({}, grouping)).size(), 0u);
}

}  // namespace
}  // namespace baton::cli
