#include "router/metrics/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(ProbeTest, TheLoadOfAFleetUnderVllmsNamesIfAskedFor) {
  telemetry::Metrics metrics;
  Probe probe(metrics, {}, "small");
  probe.Load({.waiting = 1, .running = 1, .held_blocks = 1, .total_blocks = 1});
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("vllm:")));

  probe.NameAsVllm("small");
  probe.Load({.waiting = 3, .running = 5, .held_blocks = 30, .total_blocks = 120});
  std::string page = metrics.Text();
  EXPECT_THAT(page, HasSubstr("# TYPE vllm:num_requests_waiting gauge\n"));
  // The labels that vLLM's own metrics have, and no others.
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_waiting{model_name=\"small\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{model_name=\"small\"} 5\n"));
  EXPECT_THAT(page, HasSubstr("vllm:kv_cache_usage_perc{model_name=\"small\"} 0.25\n"));
  EXPECT_THAT(page, HasSubstr("vllm:gpu_cache_usage_perc{model_name=\"small\"} 0.25\n"));

  // No worker is there.
  probe.Load({});
  EXPECT_THAT(metrics.Text(), HasSubstr("vllm:kv_cache_usage_perc{model_name=\"small\"} 0\n"));
}

}  // namespace
}  // namespace baton::router
