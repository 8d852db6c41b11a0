// The report of `baton simulate`: its table, and how it counts where some were refused.
#include "lab/simulate/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/unit/lab/simulate/scene.h"

namespace baton::lab::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The cells of a line: what two blanks or more divide.
std::vector<std::string> Cells(absl::string_view line) {
  std::vector<std::string> cells;
  for (absl::string_view cell : absl::StrSplit(line, "  ", absl::SkipWhitespace())) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

TEST(ReportTest, ColumnsStayApartHoweverLongTheyAre) {
  Measures overloaded;
  overloaded.policy = "a-policy-with-a-very-long-name";
  overloaded.goodput = 123456.78;
  overloaded.ttft = {.p50 = 754, .p99 = 4000};
  overloaded.tpot = {.p50 = 0.01, .p99 = 754};
  const std::vector<std::string> lines = absl::StrSplit(RenderTable({overloaded, Measures()}), '\n');
  EXPECT_THAT(Cells(lines[1]),
              ElementsAre("a-policy-with-a-very-long-name", "123456.78/s", "0.0%", "0.0%", "0.0%", "0.0%",
                          "12 min 34 s", "66 min 40 s", "10.0 ms", "12 min 34 s", "0%", "0.00"));
  EXPECT_EQ(Cells(lines[0]).size(), Cells(lines[1]).size());
  EXPECT_EQ(lines[0].size(), lines[1].size());
}

// Cheap prompts that share a prefix are served; long ones that share nothing are refused, and what they
// would have missed is no measure of what was found.
TEST(ReportTest, NothingFindsMoreThanAllEvenIfSomeAreRefused) {
  const FleetModel model;
  std::vector<uint64_t> shared;
  uint64_t block = 0;
  for (int i = 0; i < 8; ++i) shared.push_back(++block);
  std::vector<Request> load;
  for (int i = 0; i < 400; ++i) {
    std::vector<uint64_t> own;
    for (int k = 0; k < 60; ++k) own.push_back(++block);
    load.push_back(LoadMaker::Make(0.05 * i, shared, 10, 8));
    load.push_back(LoadMaker::Make(0.05 * i, own, 10, 8));
  }
  auto under_test = FindPolicy("prefix_affinity", model);
  ASSERT_TRUE(under_test.ok());
  under_test->default_ttft = 2;
  Simulation simulation(model, *under_test, load, 1);
  const Measures measures = Measure("", simulation.Run([](int64_t) {}), Slo(), model.block_tokens);
  ASSERT_GT(measures.refused, 100);
  EXPECT_GT(measures.hit_rate, IdealHitRate(load, model.block_tokens)) << "or this proves nothing";
  EXPECT_LE(measures.hit_share, 1);
  EXPECT_GT(measures.hit_share, 0.9);
  EXPECT_THAT(RenderTable({measures}), HasSubstr(" refused at once"));
}

}  // namespace
}  // namespace baton::lab::simulate
