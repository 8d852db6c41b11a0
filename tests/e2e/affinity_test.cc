// Repeated prefixes land where they are held, as a client sees it: real processes, real KV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "common/base/ids.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

std::vector<int32_t> RandomPrompt(uint32_t seed, int tokens) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) prompt.push_back(static_cast<int32_t>(100 + random() % 400));
  return prompt;
}

v1::GenerateRequest Explained(const std::vector<int32_t>& prompt, uint32_t max_tokens = 4) {
  v1::GenerateRequest request = TokenRequest(prompt, max_tokens);
  request.mutable_options()->set_debug(true);
  return request;
}

// Asks until the router expects this many blocks of the prompt on a worker, or for a generous time.
// The workers tell the routers what they hold within milliseconds.
Answer AskUntilMatched(Fleet& fleet, const v1::GenerateRequest& request, uint32_t blocks) {
  Answer answer;
  const auto is_matched = [&] {
    answer = fleet.Generate(request);
    return !answer.status.ok() || answer.finished.empty() ||
           answer.end().placement().decode_matched_blocks() >= blocks;
  };
  Await(is_matched, "a router that knows what the workers hold");
  return answer;
}

TEST(AffinityTest, ThePlacementExplainsItselfOnlyIfAsked) {
  Fleet fleet;
  const Answer silent = fleet.Generate(TokenRequest(RandomPrompt(1, 100), 4));
  ASSERT_TRUE(silent.status.ok()) << silent.status;
  EXPECT_FALSE(silent.end().has_placement());
  const Answer explained = fleet.Generate(Explained(RandomPrompt(2, 100)));
  ASSERT_TRUE(explained.status.ok()) << explained.status;
  EXPECT_EQ(explained.end().placement().prompt_blocks(), 6u);
  EXPECT_FALSE(explained.end().placement().policy().empty());
  EXPECT_FALSE(explained.end().placement().reason().empty());
}

TEST(AffinityTest, TheRouterKnowsWhatTheWorkersHold) {
  Fleet fleet;
  const auto request = Explained(RandomPrompt(3, 40 * kBlockTokens));
  ASSERT_TRUE(fleet.Generate(request).status.ok());
  const Answer again = AskUntilMatched(fleet, request, 40);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.end().placement().decode_matched_blocks(), 40u);
  // The last token is always computed, so the last block may be too.
  EXPECT_GE(again.end().usage().decode_cached_tokens(), 39u * kBlockTokens);
  // A longer prompt that begins the same way matches as far as it is the same.
  auto longer = RandomPrompt(3, 40 * kBlockTokens);
  for (int32_t token : RandomPrompt(4, 10 * kBlockTokens)) longer.push_back(token);
  const Answer extended = fleet.Generate(Explained(longer));
  ASSERT_TRUE(extended.status.ok()) << extended.status;
  EXPECT_EQ(extended.end().placement().prompt_blocks(), 50u);
  EXPECT_GE(extended.end().placement().decode_matched_blocks(), 40u);
}

TEST(AffinityTest, ARestartedWorkerIsBelievedToHoldNothing) {
  Fleet fleet;
  const auto request = Explained(RandomPrompt(5, 20 * kBlockTokens));
  ASSERT_TRUE(fleet.Generate(request).status.ok());
  ASSERT_EQ(AskUntilMatched(fleet, request, 20).end().placement().decode_matched_blocks(), 20u);
  fleet.prefill().Signal(SIGKILL);
  fleet.AwaitWorkers(0, 1);
  const Answer answer = fleet.Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.end().placement().prefill_matched_blocks(), 0u);
  EXPECT_EQ(answer.end().placement().decode_matched_blocks(), 20u)
      << "the other one's blocks are still known";
}

// A burst of equal prompts: those that come later are believed to find the first one's blocks, though no
// worker has said anything yet.
TEST(AffinityTest, ABurstOfEqualPromptsFindsItsOwnTail) {
  Fleet fleet;
  const auto request = Explained(RandomPrompt(6, 30 * kBlockTokens), 8);
  constexpr int kBurst = 12;
  std::vector<Answer> answers(kBurst);
  {
    std::vector<std::jthread> clients;
    for (Answer& answer : answers) clients.emplace_back([&] { answer = fleet.Generate(request); });
  }
  int found = 0;
  std::set<std::vector<int32_t>> texts;
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    found += answer.end().placement().decode_matched_blocks() == 30 ? 1 : 0;
    texts.insert(answer.tokens);
  }
  EXPECT_EQ(found, kBurst - 1);
  EXPECT_EQ(texts.size(), 1u) << "a hit changes no token";
}

TEST(AffinityTest, WorkersTellWhatEachRouterHasBookedAndAKilledRoutersBookingsEnd) {
  Fleet fleet({.gated = true});
  fleet.decode_gates().Allow(20);  // not enough for the answer
  const auto prompt = RandomPrompt(8, 100);
  Answer answer;
  std::jthread client([&] { answer = fleet.Generate(TokenRequest(prompt, 2000)); });
  EXPECT_TRUE(AwaitLoad(fleet.decode().grpc(), [](const fleet::v1::Load& load) {
    return load.booked_size() == 1 && load.booked().begin()->second.requests() == 1 &&
           load.booked().begin()->second.tokens() == 100;
  }));
  fleet.router().Signal(SIGKILL);
  const std::string cancelled = "baton_decode_requests_total{outcome=\"cancelled\"}";
  EXPECT_TRUE(Await([&] { return Metric(fleet.decode(), cancelled) == 1; }, cancelled));
  // A booking goes with its request's blocks, between two steps.
  fleet.decode_gates().Open();
  EXPECT_TRUE(
      AwaitLoad(fleet.decode().grpc(), [](const fleet::v1::Load& load) { return load.booked().empty(); }));
  client.join();
  EXPECT_FALSE(answer.status.ok());
}

// Two routers with different salts, as two tenants are, in front of the same workers.
TEST(AffinityTest, AnotherTenantsPrefixIsNotHit) {
  const std::string folder = testing::TempDir();
  const auto salted = [&](const std::string& name) {
    const std::string file = folder + "/affinity_salt_" + name;
    std::ofstream(file) << name << std::string(32, 's');
    return file;
  };
  Fleet fleet({.router_flags = {"--tenant-salt-file", salted("a")}});
  const Process other("baton-router", {"--model", kModel, "--decode", fleet.decode().grpc(), "--prefill",
                                       fleet.prefill().grpc(), "--listen", "127.0.0.1:0", "--metrics",
                                       "127.0.0.1:0", "--tenant-salt-file", salted("b")});
  const auto request = Explained(RandomPrompt(7, 20 * kBlockTokens));
  ASSERT_TRUE(fleet.Generate(request).status.ok());
  const Answer own = AskUntilMatched(fleet, request, 20);
  ASSERT_EQ(own.end().placement().decode_matched_blocks(), 20u);
  EXPECT_GE(own.end().usage().decode_cached_tokens(), 19u * kBlockTokens);

  const auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(other.grpc(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto stream = stub->Generate(&context, request);
  v1::GenerateResponse response;
  v1::Finished finished;
  while (stream->Read(&response)) {
    if (response.has_finished()) finished = response.finished();
  }
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(finished.placement().prompt_blocks(), 20u);
  EXPECT_EQ(finished.placement().decode_matched_blocks(), 0u);
  EXPECT_EQ(finished.placement().prefill_matched_blocks(), 0u);
  EXPECT_EQ(finished.usage().decode_cached_tokens(), 0u);
  EXPECT_EQ(finished.usage().prefill_cached_tokens(), 0u);
}

}  // namespace
}  // namespace baton::e2e
