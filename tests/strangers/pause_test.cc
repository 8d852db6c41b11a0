// Clients that pause, and peers that do. The router waits for a client as long as its flags say, and
// then says what happened; on the fleet's links a server bears a pause of 1.2 s.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "cli/serve/child.h"
#include "common/base/check.h"
#include "common/rpc/server.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"
#include "tests/strangers/raw_client.h"

namespace baton::strangers {
namespace {

constexpr int kPatienceMs = Scaled(120'000);

std::string WatchHealth() {
  return Frame(kHeaders, kEndHeaders, 1, CallHeaders("/grpc.health.v1.Health/Watch")) +
         Frame(kData, kEndStream, 1, std::string(5, '\0'));
}

// `baton generate` of an answer that fills every buffer on the way, stopped in the middle of it for longer
// than the two seconds in which the fleet takes a silent peer for dead. Returns how it ended.
cli::ExitStatus PauseAndGoOn(const std::string& router, std::string& output) {
  auto client = cli::Child::Spawn(BATON_BINARY_DIR "/bin/baton",
                                  {"generate", "--server", router, "--prompt", "A town of stone and coral",
                                   "--temperature", "0", "--max-tokens", "1900", "--ignore-eos"});
  BATON_CHECK(client.ok()) << client.status();
  bool paused = false;
  std::optional<cli::ExitStatus> status;
  while (!status.has_value()) {
    pollfd fds[3] = {
        {client->output_fd(), POLLIN, 0}, {client->error_fd(), POLLIN, 0}, {client->ended_fd(), POLLIN, 0}};
    BATON_CHECK(poll(fds, 3, kPatienceMs) > 0) << "the client does not end";
    char bytes[4096];
    for (const int fd : {client->output_fd(), client->error_fd()}) {
      for (ssize_t got; (got = read(fd, bytes, sizeof(bytes))) > 0;)
        output.append(bytes, static_cast<size_t>(got));
    }
    if (!paused && !output.empty()) {
      paused = true;
      client->Signal(SIGSTOP);
      absl::SleepFor(absl::Milliseconds(2500));  // the pause itself
      client->Signal(SIGCONT);
    }
    status = client->Reap();
  }
  return *status;
}

TEST(PauseTest, AClientThatPausesKeepsItsAnswer) {
  e2e::Fleet fleet({.prefill = 0});
  std::string output;
  const cli::ExitStatus status = PauseAndGoOn(fleet.router().grpc(), output);
  EXPECT_FALSE(status.signalled);
  EXPECT_EQ(status.value, 0) << output;
}

TEST(PauseTest, TheRoutersFlagsSayHowLongAndItsLogSaysWhatHappened) {
  // Without a worker: health is asked for, and the loss of that one is what else it warns of.
  e2e::Process router("baton-router",
                      {"--model", e2e::kModel, "--decode", "127.0.0.1:9", "--exit-with-parent", "--log-level",
                       "warn", "--client-ping-after", "0.1", "--client-ping-timeout", "0.2"});
  RawClient silent(router.grpc());
  ASSERT_TRUE(silent.Open() && silent.Send(WatchHealth()));
  EXPECT_TRUE(silent.AwaitClose(absl::Now() + absl::Milliseconds(kPatienceMs)));
  std::string log;
  while (log.find("answered no ping") == std::string::npos) log += router.TakeErrors();
  EXPECT_THAT(log, testing::HasSubstr("127.0.0.2"));
}

// A server of the fleet bears a client that answers its pings late, and nothing else.
TEST(PauseTest, AServerOfTheFleetBearsABusyPeer) {
  const auto server = rpc::Server::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  RawClient busy((*server)->address());
  ASSERT_TRUE(busy.Open() && busy.Send(WatchHealth()));
  std::optional<RawClient::Received> ping;
  do {
    ping = busy.Receive(absl::Now() + absl::Milliseconds(kPatienceMs));
    ASSERT_TRUE(ping.has_value());
  } while (ping->type != kPing || (ping->flags & kAck) != 0);
  const absl::Time late = absl::Now() + absl::Milliseconds(1200);
  while (const auto more = busy.Receive(late)) ASSERT_NE(more->type, kGoAway);
  ASSERT_TRUE(busy.Send(Frame(kPing, kAck, 0, ping->payload)));
  EXPECT_TRUE(busy.Receive(absl::Now() + absl::Milliseconds(kPatienceMs)).has_value()) << "it pings on";
}

// And what it does not.
TEST(PauseTest, AServerOfTheFleetNoticesADeadPeerWithinTwoSeconds) {
  const auto server = rpc::Server::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  RawClient dead((*server)->address());
  ASSERT_TRUE(dead.Open() && dead.Send(WatchHealth()));
  const absl::Time begin = absl::Now();
  ASSERT_TRUE(dead.AwaitClose(begin + absl::Milliseconds(kPatienceMs)));
  EXPECT_LE(absl::Now() - begin, Scaled(absl::Seconds(2)));
}

}  // namespace
}  // namespace baton::strangers
