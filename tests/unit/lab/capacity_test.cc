#include "lab/plan/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace baton::lab::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kProfile[] = R"({"prefill_base": 0.015, "prefill_token": 36e-6, "prefill_pair": 1e-9,
  "step_base": 0.009, "step_sequence": 50e-6, "step_context": 50e-9, "link_bandwidth": 25e9,
  "kv_bytes_per_token": 131072, "something_else": [1]})";

Load SomeLoad() {
  Load load;
  load.rate = 20;
  load.prompt_tokens = *bench::Distribution::Parse("lognormal:2000:0.8");
  load.output_tokens = bench::Distribution::Fixed(300);
  load.slo_ttft = 1;
  load.slo_tpot = 0.04;
  load.kv_bytes = int64_t{40} << 30;
  load.spare = 0;
  return load;
}

Pools Plan(const Load& load) {
  const auto pools = PlanPools(*ParseProfile(kProfile), load);
  EXPECT_TRUE(pools.ok()) << pools.status();
  return *pools;
}

TEST(Capacity, ErlangCByHand) {
  // One server: P(wait) is the load. Two at a load of one: 1/3 (by the formula's own terms).
  EXPECT_NEAR(ErlangC(1, 0.7), 0.7, 1e-12);
  EXPECT_NEAR(ErlangC(2, 1.0), 1.0 / 3, 1e-12);
  EXPECT_LT(ErlangC(100, 1.0), 1e-50);
}

TEST(Capacity, ObjectivesAreKept) {
  const Load load = SomeLoad();
  const Pools pools = Plan(load);
  EXPECT_LE(pools.prefill.ttft_p95, load.slo_ttft);
  EXPECT_LE(pools.decode.tpot, load.slo_tpot);
  EXPECT_LE(pools.decode.kv_used, 0.85 + 1e-9);
  EXPECT_LE(pools.prefill.utilization, 0.85);
}

TEST(Capacity, OneWorkerLessWouldNotDo) {
  const Load load = SomeLoad();
  const Profile profile = *ParseProfile(kProfile);
  const Pools pools = Plan(load);
  const double fewer = pools.decode.workers - 1;
  const double share = load.rate * pools.output_mean / fewer;
  const double per_sequence = profile.step_sequence + profile.step_context * pools.context_mean;
  const double batch = share * profile.step_base / (1 - share * per_sequence);
  EXPECT_TRUE(batch < 0 || batch > std::min(pools.decode.batch_by_tpot, pools.decode.batch_by_kv));
}

TEST(Capacity, ABatchIsWhatLittlesLawSays) {
  const Load load = SomeLoad();
  const Pools pools = Plan(load);
  // sequences in the pool = rate * time that each stays
  EXPECT_NEAR(pools.decode.batch * pools.decode.workers, load.rate * pools.output_mean * pools.decode.tpot,
              1e-6);
}

TEST(Capacity, WhatRunsAloneIsAWholeSequence) {
  Load load = SomeLoad();
  load.rate = 1e-3;
  const Profile profile = *ParseProfile(kProfile);
  const Pools pools = Plan(load);
  EXPECT_EQ(pools.decode.workers, 1);
  EXPECT_LT(pools.decode.batch, 0.01);
  EXPECT_DOUBLE_EQ(pools.decode.tpot, profile.StepSeconds(1, pools.context_mean));
}

TEST(Capacity, AStepWithoutABaseStillTakesItsTime) {
  // The greatest batch has no part in this: twice the batch takes twice the time.
  Load load = SomeLoad();
  Profile profile = *ParseProfile(kProfile);
  profile.step_base = 0;
  const auto pools = PlanPools(profile, load);
  ASSERT_TRUE(pools.ok()) << pools.status();
  const double per_sequence = profile.step_sequence + profile.step_context * pools->context_mean;
  EXPECT_LE(load.rate * pools->output_mean * per_sequence / pools->decode.workers, 0.85);
}

TEST(Capacity, MoreLoadNeverNeedsFewer) {
  int prefill = 0, decode = 0;
  for (double rate = 1; rate < 2000; rate *= 1.7) {
    Load load = SomeLoad();
    load.rate = rate;
    const Pools pools = Plan(load);
    EXPECT_GE(pools.prefill.workers, prefill) << rate;
    EXPECT_GE(pools.decode.workers, decode) << rate;
    prefill = pools.prefill.workers;
    decode = pools.decode.workers;
  }
  EXPECT_GT(prefill, 10);
}

TEST(Capacity, HitsSparePrefillOnly) {
  Load load = SomeLoad();
  load.rate = 200;
  const Pools cold = Plan(load);
  load.hit_rate = 0.7;
  const Pools warm = Plan(load);
  EXPECT_LT(warm.prefill.workers, cold.prefill.workers);
  EXPECT_EQ(warm.decode.workers, cold.decode.workers);
}

TEST(Capacity, LittleMemoryDecides) {
  Load load = SomeLoad();
  EXPECT_FALSE(Plan(load).decode.bound_by_kv &&
               Plan(load).decode.batch_by_kv > Plan(load).decode.batch_by_tpot);
  load.kv_bytes = int64_t{4} << 30;
  const Pools small = Plan(load);
  EXPECT_TRUE(small.decode.bound_by_kv);
  EXPECT_GT(small.decode.workers, Plan(SomeLoad()).decode.workers);
}

TEST(Capacity, ASlowLinkNeedsMoreSenders) {
  Load load = SomeLoad();
  load.rate = 100;
  Profile profile = *ParseProfile(kProfile);
  profile.link_bandwidth = 3e9;
  const auto pools = PlanPools(profile, load);
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_LE(pools->link_used, 0.7);
  EXPECT_GT(pools->prefill.workers, Plan(load).prefill.workers);
}

TEST(Capacity, SpareIsAdded) {
  Load load = SomeLoad();
  const Pools none = Plan(load);
  load.spare = 2;
  EXPECT_EQ(Plan(load).prefill.workers, none.prefill.workers + 2);
  EXPECT_EQ(Plan(load).decode.workers, none.decode.workers + 2);
}

TEST(Capacity, WhatCannotBeKeptIsSaid) {
  const Profile profile = *ParseProfile(kProfile);
  Load load = SomeLoad();
  load.slo_tpot = 0.005;
  EXPECT_THAT(std::string(PlanPools(profile, load).status().message()), HasSubstr("TPOT of 5.00 ms"));
  load = SomeLoad();
  load.slo_ttft = 0.05;
  EXPECT_THAT(std::string(PlanPools(profile, load).status().message()), HasSubstr("TTFT of"));
  load = SomeLoad();
  load.kv_bytes = 1 << 20;
  EXPECT_THAT(std::string(PlanPools(profile, load).status().message()),
              HasSubstr("does not hold one sequence"));
}

TEST(Profile, NamesWhatIsMissing) {
  EXPECT_THAT(std::string(ParseProfile(R"({"prefill_base": 1})").status().message()),
              HasSubstr("prefill_token"));
  EXPECT_THAT(std::string(ParseProfile("[]").status().message()), HasSubstr("object"));
  EXPECT_THAT(std::string(ReadProfile("/nowhere").status().message()), HasSubstr("baton bench --profile"));
  const Profile profile = *ParseProfile(kProfile);
  EXPECT_NEAR(profile.PrefillSeconds(1000, 500), 0.015 + 0.036 + 1e-9 * 1000 * 1000, 1e-12);
}

// Divided by next to nothing they were 45 million million answers at once.
TEST(Profile, RefusesSlopesThatAreAllZero) {
  const auto with = [](std::initializer_list<const char*> names) {
    auto profile = nlohmann::json::parse(kProfile);
    for (const char* const name : names) profile[name] = 0;
    return ParseProfile(profile.dump());
  };
  EXPECT_THAT(std::string(with({"step_sequence", "step_context"}).status().message()),
              AllOf(HasSubstr("step_sequence and step_context"), HasSubstr("--concurrency")));
  EXPECT_THAT(std::string(with({"prefill_token", "prefill_pair"}).status().message()),
              AllOf(HasSubstr("prefill_token and prefill_pair"), HasSubstr("--prompt-tokens")));
  for (const char* const one : {"step_sequence", "step_context", "prefill_token", "prefill_pair"}) {
    EXPECT_TRUE(with({one}).ok()) << one;
  }
}

TEST(Capacity, ALinkThatWasNotMeasuredIsLeftOut) {
  auto json = nlohmann::json::parse(kProfile);
  json.erase("link_bandwidth");
  const auto profile = ParseProfile(json.dump());
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto pools = PlanPools(*profile, SomeLoad());
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_EQ(pools->ship_seconds, 0);
  EXPECT_EQ(pools->link_used, 0);
  EXPECT_GT(pools->ship_rate, 0);
}

TEST(Capacity, ShippingTakesTheLatencyOfTheLinkToo) {
  Profile profile = *ParseProfile(kProfile);
  const double without = PlanPools(profile, SomeLoad())->ship_seconds;
  profile.link_latency = 0.1;
  EXPECT_NEAR(PlanPools(profile, SomeLoad())->ship_seconds, without + 0.1, 1e-9);
}

// A prefix on disk is not computed, takes time to read, and is shipped as if it were.
TEST(Capacity, WhatIsReadFromDiskCostsItsTimeAndShareOfTheDisk) {
  Load load = SomeLoad();
  load.prompt_tokens = bench::Distribution::Fixed(2000);
  load.slo_ttft = 2;
  const Pools without = Plan(load);
  load.disk_hit_rate = 0.5;
  load.disk_bandwidth = 1e9;
  const Pools with = Plan(load);
  EXPECT_NEAR(with.disk_seconds, 1000 * 131072 / 1e9, 1e-9);
  EXPECT_NEAR(with.uncached_mean, 1000, 1e-6);
  EXPECT_NEAR(with.ship_seconds, without.ship_seconds, 1e-12);
  EXPECT_LT(with.prefill.seconds_mean, without.prefill.seconds_mean);
  EXPECT_EQ(without.disk_used, 0);
  // 20 a second of 131 MB each are too much for two disks of 1 GB/s.
  EXPECT_GE(with.prefill.workers, 4);
  EXPECT_NEAR(with.disk_rate * with.prefill.workers, 20 * 1000 * 131072.0, 1);
  EXPECT_LE(with.disk_used, 0.7);
  load.disk_bandwidth = 50e6;
  const auto slow = PlanPools(*ParseProfile(kProfile), load);
  ASSERT_FALSE(slow.ok());
  EXPECT_THAT(std::string(slow.status().message()), HasSubstr("to read from disk"));
}

}  // namespace
}  // namespace baton::lab::plan
