#include "router/placement/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/random.h"

namespace baton::router::placement {
namespace {

using fleet::Role;
using fleet::Worker;

std::shared_ptr<Worker> MakeWorker(Role role, int seat, uint32_t running = 0, uint64_t queued_tokens = 0) {
  auto worker = std::make_shared<Worker>(Worker::Identity{.seat = seat,
                                                          .address = "",
                                                          .id = std::to_string(seat),
                                                          .role = role,
                                                          .incarnation = Incarnation(seat),
                                                          .fingerprint = {}});
  v1::Load load;
  load.set_running(running);
  load.set_queued_tokens(queued_tokens);
  worker->Report(load, "me");
  return worker;
}

using Workers = std::vector<std::shared_ptr<Worker>>;

TEST(LeastLoadedTest, TakesTheFewestRequests) {
  auto policy = *MakePolicy("least_loaded", 1);
  const Workers decode = {MakeWorker(Role::kDecode, 0, 3), MakeWorker(Role::kDecode, 1, 1),
                          MakeWorker(Role::kDecode, 2, 2)};
  EXPECT_EQ(policy->Choose({}, decode, {}).decode, 1u);
  decode[1]->Book(100);
  decode[1]->Book(100);
  EXPECT_EQ(policy->Choose({}, decode, {}).decode, 2u) << "bookings weigh before any report";
}

TEST(LeastLoadedTest, DoesNotCountItsOwnRequestsTwice) {
  auto worker = MakeWorker(Role::kDecode, 0);
  worker->Book(10);
  worker->Book(10);
  v1::Load load;
  load.set_running(5);
  (*load.mutable_booked())["me"] = 2;
  (*load.mutable_booked())["another"] = 3;
  worker->Report(load, "me");
  EXPECT_EQ(worker->Requests(), 5);
  worker->Unbook(10);
  EXPECT_EQ(worker->Requests(), 4) << "an ended request leaves at once";
}

TEST(LeastLoadedTest, RanksPrefillWorkersByWaitingTokens) {
  auto policy = *MakePolicy("least_loaded", 1);
  const Workers decode = {MakeWorker(Role::kDecode, 0)};
  const Workers prefill = {MakeWorker(Role::kPrefill, 0, 0, 900), MakeWorker(Role::kPrefill, 1, 0, 100),
                           MakeWorker(Role::kPrefill, 2, 0, 500), MakeWorker(Role::kPrefill, 3, 0, 700)};
  EXPECT_EQ(policy->Choose({}, decode, prefill).prefill, (std::vector<size_t>{1, 2, 3}));
}

TEST(LeastLoadedTest, ABurstSpreadsEvenly) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  auto policy = *MakePolicy("least_loaded", seed);
  Workers decode, prefill;
  for (int i = 0; i < 7; ++i) decode.push_back(MakeWorker(Role::kDecode, i));
  for (int i = 0; i < 3; ++i) prefill.push_back(MakeWorker(Role::kPrefill, i));
  for (int i = 0; i < 700; ++i) {
    const Choice choice = policy->Choose({}, decode, prefill);
    decode[choice.decode]->Book(16);
    prefill[choice.prefill.front()]->Book(16);
  }
  for (const auto& worker : decode) EXPECT_EQ(worker->BookedRequests(), 100);
  for (const auto& worker : prefill) EXPECT_NEAR(worker->BookedRequests(), 233, 1);
}

TEST(LeastLoadedTest, EqualsAreChosenAlike) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  auto policy = *MakePolicy("least_loaded", seed);
  Workers decode;
  for (int i = 0; i < 4; ++i) decode.push_back(MakeWorker(Role::kDecode, i));
  std::map<size_t, int> chosen;
  for (int i = 0; i < 4000; ++i) ++chosen[policy->Choose({}, decode, {}).decode];
  for (const auto& [at, times] : chosen) EXPECT_NEAR(times, 1000, 200) << at;  // 7 sigma
}

// Whatever the loads: no worker with fewer requests was passed over, and targets are distinct and in order.
TEST(LeastLoadedTest, IsNeverBeaten) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  auto policy = *MakePolicy("least_loaded", seed);
  for (int round = 0; round < 300; ++round) {
    Workers decode, prefill;
    for (int i = 0; i <= draw(9); ++i) decode.push_back(MakeWorker(Role::kDecode, i, draw(5)));
    for (int i = 0; i < draw(6); ++i) prefill.push_back(MakeWorker(Role::kPrefill, i, 0, draw(4) * 100));
    const Choice choice = policy->Choose({}, decode, prefill);
    for (const auto& worker : decode) EXPECT_LE(decode[choice.decode]->Requests(), worker->Requests());
    EXPECT_EQ(choice.prefill.size(), std::min(kMaxPrefillTargets, prefill.size()));
    for (size_t i = 1; i < choice.prefill.size(); ++i) {
      EXPECT_LE(prefill[choice.prefill[i - 1]]->QueuedTokens(), prefill[choice.prefill[i]]->QueuedTokens());
      EXPECT_NE(choice.prefill[i - 1], choice.prefill[i]);
    }
  }
}

TEST(RoundRobinTest, TakesEachInTurn) {
  auto policy = *MakePolicy("round_robin", 0);
  const Workers decode = {MakeWorker(Role::kDecode, 0, 9), MakeWorker(Role::kDecode, 1)};
  const Workers prefill = {MakeWorker(Role::kPrefill, 0), MakeWorker(Role::kPrefill, 1)};
  EXPECT_EQ(policy->Choose({}, decode, prefill).decode, 0u);
  const Choice second = policy->Choose({}, decode, prefill);
  EXPECT_EQ(second.decode, 1u);
  EXPECT_EQ(second.prefill, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(policy->Choose({}, decode, prefill).decode, 0u);
}

TEST(MakePolicyTest, NamesWhatIsKnown) {
  const auto policy = MakePolicy("fastest", 0);
  EXPECT_TRUE(absl::IsInvalidArgument(policy.status()));
  EXPECT_NE(policy.status().message().find("least_loaded or round_robin"), absl::string_view::npos);
}

}  // namespace
}  // namespace baton::router::placement
