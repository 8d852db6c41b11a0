#include "lab/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::lab::bench {
namespace {

using ::testing::HasSubstr;

Summary Example() {
  Summary summary;
  summary.seconds = 10;
  summary.succeeded = 4;
  summary.failed = 1;
  summary.input_tokens = 4000;
  summary.output_tokens = 200;
  summary.decode_cached_tokens = 1000;
  summary.good = 3;
  summary.errors["UNAVAILABLE"] = {1, "no worker"};
  for (const double value : {0.1, 0.2, 0.3, 0.4}) {
    summary.ttft.Add(value);
    summary.e2e.Add(value);
    summary.lateness.Add(0);
    for (Samples& phase : summary.phases) phase.Add(value / 6);
  }
  summary.links["host"] = 4;
  return summary;
}

TEST(ReportTest, TellsAPerson) {
  const Slo slo = {absl::Milliseconds(350), absl::Milliseconds(50)};
  const std::string text = RenderReport(Example(), slo, {});
  EXPECT_THAT(text, HasSubstr("4 ok, 1 failed, in 10.0 s: 0.40/s"));
  EXPECT_THAT(text, HasSubstr("1 x UNAVAILABLE: no worker"));
  EXPECT_THAT(text, HasSubstr("in 4,000 (400/s), out 200 (20/s)"));
  EXPECT_THAT(text, HasSubstr("25.0% of prompt tokens on decode"));
  EXPECT_THAT(text, HasSubstr("0.30/s: 60.0% of requests within TTFT 350 ms and TPOT 50.0 ms"));
  EXPECT_EQ(text.find("TPOT  "), std::string::npos) << "no values, no row";
  EXPECT_EQ(text.find("too busy"), std::string::npos);
}

TEST(ReportTest, SaysWhenTheClientWasTheBottleneck) {
  Summary summary = Example();
  for (int i = 0; i < 10; ++i) summary.lateness.Add(0.5);
  EXPECT_THAT(RenderReport(summary, {}, {}), HasSubstr("this machine is too busy for this load"));
}

TEST(ReportTest, SaysThatTokensCameInBunches) {
  Summary summary = Example();
  for (int i = 0; i < 100; ++i) summary.itl.Add(0.01);
  summary.bunched = 10;
  EXPECT_EQ(RenderReport(summary, {}, {}).find("bunched"), std::string::npos) << "about even";
  summary.bunched = 60;
  EXPECT_THAT(RenderReport(summary, {}, {}),
              HasSubstr("60% of tokens came less than a tenth of the TPOT after the token before"));
  EXPECT_EQ(ReportToJson(summary, {}, {}, {})["bunched_share"], 0.6);
}

TEST(ReportTest, WithoutSuccessThereAreNoLatencies) {
  Summary summary;
  summary.failed = 2;
  summary.errors["INTERNAL"] = {2, "broken"};
  const std::string text = RenderReport(summary, {}, {});
  EXPECT_THAT(text, HasSubstr("2 x INTERNAL: broken"));
  EXPECT_EQ(text.find("p99"), std::string::npos);
}

TEST(ReportTest, TellsAProgram) {
  Provenance provenance;
  provenance.commit = "abc";
  provenance.seed = 5;
  provenance.asked = 0xAB;
  const nlohmann::json json =
      ReportToJson(Example(), {absl::Milliseconds(350), std::nullopt}, provenance, {{"rate", "3"}});
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["asked"], "000000ab");
  EXPECT_EQ(json["settings"]["rate"], "3");
  EXPECT_EQ(json["ttft"]["p50"], 0.2);
  EXPECT_EQ(json["ttft"]["p99"], 0.4);
  EXPECT_EQ(json["goodput"]["per_second"], 0.3);
  EXPECT_EQ(json["goodput"]["slo_ttft"], 0.35);
  EXPECT_FALSE(json["goodput"].contains("slo_tpot"));
  EXPECT_EQ(json["relay"]["links"]["host"], 4);
}

TEST(MachineTest, ThisOneHasAName) {
  const Machine machine = ThisMachine();
  EXPECT_GT(machine.cores, 0);
  EXPECT_GT(machine.memory_bytes, 1 << 20);
  EXPECT_THAT(machine.kernel, HasSubstr("Linux"));
}

}  // namespace
}  // namespace baton::lab::bench
