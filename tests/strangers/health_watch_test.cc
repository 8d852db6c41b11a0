// `baton serve` and a process that hangs: it is killed, to be started again; one that answers is not, unless
// it asks to be replaced.
#include "cli/serve/health_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <optional>
#include <utility>

#include "cli/serve/child.h"
#include "common/rpc/server.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::strangers {
namespace {

e2e::Process Router() {
  return {"baton-router",
          {"--model", e2e::kModel, "--decode", "127.0.0.1:9", "--exit-with-parent", "--log-level", "off"}};
}

TEST(HealthWatchTest, KillsWhatHangsAndNothingElse) {
  e2e::Process hung = Router(), alive = Router();
  // Patient enough for a busy machine; the one that hangs never answers.
  cli::HealthWatch watch(
      {.interval = absl::Milliseconds(20), .patience = Scaled(absl::Seconds(2)), .chances = 2});
  watch.Follow("hung", hung.pid(), hung.grpc());
  watch.Follow("alive", alive.pid(), alive.grpc());
  hung.Signal(SIGSTOP);
  const cli::ExitStatus end = hung.Wait();
  EXPECT_TRUE(end.signalled);
  EXPECT_EQ(end.value, SIGKILL);
  EXPECT_TRUE(watch.Forget("hung"));
  EXPECT_FALSE(watch.Forget("alive"));
  EXPECT_EQ(kill(alive.pid(), 0), 0);
}

// A worker whose link does not come back from NCCL says so, and no kubelet asks it: it is one of a pod's.
TEST(HealthWatchTest, KillsWhatAsksToBeReplaced) {
  const auto start = [] { return std::move(*cli::Child::Spawn("/bin/sleep", {"1000"})); };
  cli::Child faulty = start(), sound = start();
  auto faulty_server = rpc::Server::Start({}, {}), sound_server = rpc::Server::Start({}, {});
  ASSERT_TRUE(faulty_server.ok() && sound_server.ok());
  (*faulty_server)->SetLive(false);
  (*sound_server)->SetServing(false);  // not ready is not dead
  cli::HealthWatch watch({.interval = absl::Milliseconds(20), .chances = 2});
  watch.Follow("sound", sound.pid(), (*sound_server)->address());
  watch.Follow("faulty", faulty.pid(), (*faulty_server)->address());
  pollfd ended = {faulty.ended_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&ended, 1, Scaled(60'000)), 1);
  const std::optional<cli::ExitStatus> end = faulty.Reap();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->value, SIGKILL);
  EXPECT_TRUE(watch.Forget("faulty"));
  EXPECT_FALSE(watch.Forget("sound"));
}

}  // namespace
}  // namespace baton::strangers
