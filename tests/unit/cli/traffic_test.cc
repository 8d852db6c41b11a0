#include "cli/serve/traffic.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

constexpr char kPage[] = R"(# HELP baton_router_requests_total Generation requests by canonical status code
# TYPE baton_router_requests_total counter
baton_router_requests_total{outcome="OK"} 40
baton_router_requests_total{outcome="UNAVAILABLE"} 2
baton_router_requests_total{outcome="RESOURCE_EXHAUSTED"} 1
baton_router_ttft_seconds_bucket{le="0.1"} 38
baton_router_ttft_seconds_count 40
baton_router_ttft_seconds_sum 2.5e+00
baton_router_answer_tokens_total 1234
baton_router_placed_tokens_total 5000
baton_router_cached_tokens_total{pool="decode"} 1000
baton_router_cached_tokens_total{pool="prefill"} 500
baton_router_running 7
baton_router_queue_requests 3
baton_router_broken
)";

TEST(TrafficTest, ReadsAPage) {
  const Traffic traffic = Traffic::Parse(kPage);
  EXPECT_EQ(traffic.answered, 40);
  EXPECT_EQ(traffic.failed, 3);
  EXPECT_EQ(traffic.first_tokens, 40);
  EXPECT_EQ(traffic.ttft_seconds, 2.5);
  EXPECT_EQ(traffic.answer_tokens, 1234);
  EXPECT_EQ(traffic.placed_tokens, 5000);
  EXPECT_EQ(traffic.cached_tokens, 1500);
  EXPECT_EQ(traffic.running, 7);
  EXPECT_EQ(traffic.queued, 3);
  EXPECT_EQ(Traffic::Parse("").answered, 0);
}

TEST(TrafficTest, SaysWhatHappenedInBetween) {
  const Traffic before = Traffic::Parse(kPage);
  Traffic after = before;
  EXPECT_EQ(DescribeTraffic(before, after, 5),
            "0.0 requests/s, TTFT -, 0 tokens/s, - cached, 7 running, 3 queued");
  after.answered += 15;
  after.first_tokens += 10;
  after.ttft_seconds += 0.5;
  after.answer_tokens += 600;
  after.placed_tokens += 1000;
  after.cached_tokens += 620;
  after.queued = 0;
  EXPECT_EQ(DescribeTraffic(before, after, 5),
            "3.0 requests/s, TTFT 50.0 ms, 120 tokens/s, 62% cached, 7 running");
  after.failed += 5;
  after.cached_tokens += 1000;
  EXPECT_EQ(DescribeTraffic(before, after, 5),
            "4.0 requests/s (5 failed), TTFT 50.0 ms, 120 tokens/s, 100% cached, 7 running");
}

TEST(TrafficTest, ARouterThatWasStartedAgainCountsFromZero) {
  const Traffic before = {.answered = 1000, .answer_tokens = 50'000};
  const Traffic after = {.answered = 10, .answer_tokens = 500};
  EXPECT_EQ(DescribeTraffic(before, after, 5), "2.0 requests/s, TTFT -, 100 tokens/s, - cached, 0 running");
}

}  // namespace
}  // namespace baton::cli
