// A decode worker's own rule for which prompts it computes (--local-prefill-tokens).
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

#include "router/placement/policy.h"

namespace baton::router::placement {
namespace {

using Deciders = std::vector<WorkerState>;

WorkerState Deciding(uint32_t slot, int64_t running = 0, int64_t queued_tokens = 0) {
  WorkerState state;
  state.slot = WorkerSlot(slot);
  state.running = running;
  state.queued_tokens = queued_tokens;
  return state;
}

// 891 tokens beside a queue of seconds: without a rule the decode worker computes them.
TEST(LocalRuleTest, AWorkersRuleForLocalPrefillBinds) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  Deciders decode = {Deciding(0)};
  const Deciders prefill = {Deciding(1, 0, 30'000)}, idle = {Deciding(1)};
  const Request request = {.prompt_tokens = 891, .max_tokens = 100};
  const auto reason = [&](const Deciders& pool) { return policy->Select(request, {decode, pool}).reason; };
  const auto is_local = [&](const Deciders& pool) {
    return policy->Select(request, {decode, pool}).prefill.empty();
  };
  EXPECT_TRUE(is_local(prefill)) << "that is sooner";
  EXPECT_EQ(reason({}), Reason::kLocal) << "there is no rule";

  decode[0].local_prefill_tokens = 64;
  EXPECT_FALSE(is_local(prefill)) << "however long the queue";
  EXPECT_EQ(reason(prefill), Reason::kCold);
  EXPECT_EQ(reason({}), Reason::kNoPrefill);
  EXPECT_TRUE(is_local({}));
  // It has no prefill worker to choose from, for it wants none.
  Request here = request;
  here.prefill_here = true;
  EXPECT_EQ(policy->Select(here, {decode, {}}).reason, Reason::kLocal);

  decode[0].matched_blocks = decode[0].disk_blocks = 52;  // 59 tokens are left
  EXPECT_FALSE(is_local(prefill)) << "what is only expected there is not cached there";
  decode[0].confirmed_blocks = 52;
  EXPECT_TRUE(is_local(prefill));
  EXPECT_EQ(reason({}), Reason::kLocal) << "a rest that it would compute anyhow";
  decode[0].local_prefill_tokens = 58;
  EXPECT_FALSE(is_local(prefill));

  // And the other way round: sooner elsewhere, and computed here.
  decode = {Deciding(0, 40, 200'000)};
  EXPECT_FALSE(is_local(idle));
  decode[0].local_prefill_tokens = 891;
  EXPECT_TRUE(is_local(idle));
  decode[0].local_prefill_tokens = 0;
  EXPECT_FALSE(is_local(idle));
  Request apart = request;
  apart.prefill_apart = true;
  decode[0].local_prefill_tokens = 891;
  EXPECT_FALSE(policy->Select(apart, {decode, idle}).prefill.empty()) << "the request's own wish goes first";
}

TEST(LocalRuleTest, EachReasonHasAName) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kReasons; ++i) names.insert(ReasonName(static_cast<Reason>(i)));
  EXPECT_EQ(names.size(), kReasons);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace baton::router::placement
