// What `baton serve` does about a process that hangs: it is killed, to be started again; one that answers is
// not.
#include "cli/serve/health_watch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/fleet.h"

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
      {.interval = absl::Milliseconds(20), .patience = absl::Seconds(2) * BATON_PATIENCE, .chances = 2});
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

}  // namespace
}  // namespace baton::strangers
