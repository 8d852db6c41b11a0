#include "router/metrics/worker_hits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "common/telemetry/metrics.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const WorkerHits::Name kOne{"decode-0", "decode"};
const WorkerHits::Name kTwo{"prefill-0", "prefill"};

TEST(WorkerHitsTest, CountsByWorker) {
  telemetry::Metrics metrics;
  WorkerHits hits(metrics);
  hits.Placed(kOne, 100, 64);
  hits.Placed(kOne, 50, 0);
  hits.Found(kOne, 48);
  hits.Placed(kTwo, 100, 16);
  const std::string text = metrics.Text();
  EXPECT_THAT(text,
              HasSubstr("baton_router_worker_prompt_tokens_total{pool=\"decode\",worker=\"decode-0\"} 150"));
  EXPECT_THAT(
      text, HasSubstr("baton_router_worker_predicted_tokens_total{pool=\"decode\",worker=\"decode-0\"} 64"));
  EXPECT_THAT(text,
              HasSubstr("baton_router_worker_cached_tokens_total{pool=\"decode\",worker=\"decode-0\"} 48"));
  EXPECT_THAT(
      text,
      HasSubstr("baton_router_worker_predicted_tokens_total{pool=\"prefill\",worker=\"prefill-0\"} 16"));
}

TEST(WorkerHitsTest, WhoLeftIsForgotten) {
  telemetry::Metrics metrics;
  WorkerHits hits(metrics);
  hits.Placed(kOne, 100, 64);
  hits.Placed(kTwo, 100, 64);
  hits.Keep({kTwo});
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("decode-0")));
  EXPECT_THAT(metrics.Text(), HasSubstr("prefill-0"));
  // A late word of it, and it is forgotten again.
  hits.Found(kOne, 1);
  EXPECT_THAT(metrics.Text(), HasSubstr("decode-0"));
  hits.Keep({kTwo});
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("decode-0")));
}

// Two models' fleets may have workers of one name, or share one: what one fleet forgets stays the other's.
TEST(WorkerHitsTest, FleetsHaveCountersOfTheirOwn) {
  telemetry::Metrics metrics;
  telemetry::Metrics of_a = metrics.With({{"model", "a"}}), of_b = metrics.With({{"model", "b"}});
  WorkerHits a(of_a), b(of_b);
  a.Placed(kOne, 100, 64);
  b.Placed(kOne, 10, 0);
  a.Keep({});
  b.Placed(kOne, 20, 0);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("model=\"a\"")));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_router_worker_prompt_tokens_total{model=\"b\",pool=\"decode\","
                                        "worker=\"decode-0\"} 30"));
}

TEST(WorkerHitsTest, AFleetTooLargeHasNone) {
  telemetry::Metrics metrics;
  WorkerHits hits(metrics);
  std::vector<WorkerHits::Name> fleet;
  for (size_t i = 0; i <= WorkerHits::kMaxWorkers; ++i)
    fleet.emplace_back("decode-" + std::to_string(i), "decode");
  hits.Placed(kOne, 1, 1);
  hits.Keep(fleet);
  hits.Placed(kOne, 1, 1);
  hits.Found(kOne, 1);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("decode-0")));
  fleet.pop_back();
  hits.Keep(fleet);
  hits.Placed(kOne, 1, 1);
  EXPECT_THAT(metrics.Text(), HasSubstr("decode-0"));
}

TEST(WorkerHitsTest, WorkersComeAndGoWhileTheyAreCounted) {
  telemetry::Metrics metrics;
  WorkerHits hits(metrics);
  hits.Placed(kOne, 1, 1);
  std::thread counts([&] {
    for (int i = 0; i < 2000; ++i) hits.Placed(i % 2 == 0 ? kOne : kTwo, 1, 1);
  });
  for (int i = 0; i < 200; ++i) {
    hits.Keep({kOne});
    EXPECT_THAT(metrics.Text(), HasSubstr("decode-0"));
  }
  counts.join();
  hits.Keep({});
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("worker=")));
}

}  // namespace
}  // namespace baton::router
