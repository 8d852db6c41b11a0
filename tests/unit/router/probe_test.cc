#include "router/metrics/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::router {
namespace {

using ::testing::HasSubstr;

TEST(ProbeTest, RulesCanJudgeByTheFlagsOfThisProcess) {
  telemetry::Metrics metrics;
  // Neither bound is the edge of a bucket: no histogram could tell.
  Probe probe(metrics, {.ttft_seconds = 0.6, .tpot_seconds = 0.022});
  std::string page = metrics.Text();
  EXPECT_THAT(page, HasSubstr("baton_router_slo_seconds{slo=\"ttft\"} 0.6\n"));
  EXPECT_THAT(page, HasSubstr("baton_router_slo_seconds{slo=\"tpot\"} 0.022\n"));
  EXPECT_THAT(page, HasSubstr("baton_router_over_slo_total{slo=\"ttft\"} 0\n"));

  probe.FirstToken(absl::Milliseconds(600));
  probe.FirstToken(absl::Milliseconds(601));
  probe.FirstToken(absl::Milliseconds(700));
  probe.Pace(0.0219);
  probe.Pace(0.0221);
  page = metrics.Text();
  EXPECT_THAT(page, HasSubstr("baton_router_over_slo_total{slo=\"ttft\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("baton_router_ttft_seconds_count 3\n"));
  EXPECT_THAT(page, HasSubstr("baton_router_over_slo_total{slo=\"tpot\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("baton_router_tpot_seconds_count 2\n"));
}

}  // namespace
}  // namespace baton::router
