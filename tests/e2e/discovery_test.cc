// Workers that come and go in the fleet file while requests run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "tests/e2e/fleet.h"
#include "tests/e2e/salted_prompt.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

TEST(DiscoveryTest, AFleetThatMovesByItsFileFailsNoRequest) {
  const std::string file = ::testing::TempDir() + "/fleet_" + std::to_string(getpid()) + ".json";
  Fleet fleet({.prefill = 0, .decode = 2, .router_flags = {"--policy", "round_robin"}, .fleet_file = file});
  constexpr int kClients = 3;
  constexpr int kAnswer = 200;
  std::vector<Answer> undisturbed;
  for (int i = 0; i < kClients; ++i) {
    undisturbed.push_back(fleet.Generate(TokenRequest(SaltedPrompt(80, i), kAnswer)));
    ASSERT_TRUE(undisturbed.back().status.ok()) << undisturbed.back().status;
    EXPECT_EQ(undisturbed.back().end().relay().decode_worker(), "decode-0") << "the only one listed";
  }
  std::atomic<bool> stop = false;
  std::atomic<int> by_first = 0, by_second = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      while (!stop) {
        const Answer answer = fleet.Generate(TokenRequest(SaltedPrompt(80, i), kAnswer));
        if (!answer.status.ok()) {
          ADD_FAILURE() << answer.status;
          continue;
        }
        EXPECT_EQ(answer.digests, undisturbed[i].digests);
        EXPECT_EQ(answer.end().relay().migrations(), 0u) << "running answers stay where they are";
        ++(answer.end().relay().decode_worker() == "decode-0" ? by_first : by_second);
      }
    });
  }
  const auto await = [](const std::atomic<int>& count, int more) {
    const int until = count + more;
    Await([&] { return count >= until || ::testing::Test::HasFailure(); }, "answers of a worker");
  };
  await(by_first, 1);
  EXPECT_EQ(by_second, 0);
  fleet.ListDecode({0, 1});
  fleet.AwaitWorkers(0, 2);
  await(by_second, 2);
  fleet.ListDecode({1});
  fleet.AwaitWorkers(0, 1);
  fleet.decode(0).Signal(SIGTERM);
  EXPECT_EQ(fleet.decode(0).Wait().value, 0);
  const int first_had = by_first;
  await(by_second, 3);
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_LE(by_first, first_had + kClients) << "no more than what ran there";
  std::printf("%d requests on the first worker, %d on the second\n", by_first.load(), by_second.load());
  EXPECT_TRUE(
      AwaitLoad(fleet.decode(1).grpc(), [](const fleet::v1::Load& load) { return load.running() == 0; }));
  std::remove(file.c_str());
}

}  // namespace
}  // namespace baton::e2e
