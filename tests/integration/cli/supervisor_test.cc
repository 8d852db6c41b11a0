// The supervisor with real processes (shells) and real signals.
#include "cli/serve/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using ::testing::HasSubstr;
using Kind = ProcessEvent::Kind;

// A process that runs `script`, with `arguments` as $1, $2, ...
ProcessSpec Shell(const std::string& name, const std::string& script, int stage = 0,
                  std::function<std::vector<std::string>(const AddressBook&)> arguments = nullptr) {
  return {name, "/bin/sh",
          [=](const AddressBook& book) {
            std::vector<std::string> all = {"-c", script, name};
            if (arguments) {
              for (std::string& argument : arguments(book)) all.push_back(std::move(argument));
            }
            return all;
          },
          stage};
}

SupervisorOptions Quick() {
  SupervisorOptions options;
  options.first_delay = absl::Milliseconds(1);
  options.max_delay = absl::Milliseconds(10);
  return options;
}

bool EndsInTime(int pidfd) {
  pollfd fd = {pidfd, POLLIN, 0};
  return poll(&fd, 1, kPatienceMs) == 1;
}

int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

TEST(SupervisorTest, AKilledProcessComesBackOnTheSameAddress) {
  std::vector<std::string> addresses;
  std::vector<std::string> reasons;
  int serving = 0;
  Supervisor* running = nullptr;
  const auto address = [&](const AddressBook& book) -> std::vector<std::string> {
    const auto entry = book.find("worker");
    addresses.push_back(entry == book.end() ? "host:chosen" : "again:" + entry->second.at("grpc"));
    return {addresses.back()};
  };
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) {
    if (event.kind == Kind::kReady && event.restarts == 0) kill(event.pid, SIGKILL);
    if (event.kind == Kind::kDied) {
      reasons.push_back(event.reason);
      EXPECT_TRUE(event.restart_in.has_value());
    }
  };
  listener.ready = [&](const AddressBook& book) {
    EXPECT_EQ(book.at("worker").at("metrics"), "m:1");
    if (++serving == 2) running->Stop();
  };
  Supervisor supervisor({Shell("worker", "echo ready grpc=$1 metrics=m:1; exec cat", 0, address)}, Quick(),
                        listener);
  running = &supervisor;
  EXPECT_TRUE(supervisor.Run().ok());
  EXPECT_THAT(addresses, ::testing::ElementsAre("host:chosen", "again:host:chosen"));
  EXPECT_THAT(reasons, ::testing::ElementsAre("killed by SIGKILL"));
}

TEST(SupervisorTest, ALaterStageStartsWithTheAddressesOfTheEarlierOnesAndEndsFirst) {
  std::vector<std::string> order;
  Supervisor* running = nullptr;
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) {
    const char* what = event.kind == Kind::kStarted ? "+" : event.kind == Kind::kReady ? "!" : "-";
    order.push_back(event.name + what);
  };
  listener.ready = [&](const AddressBook& book) {
    EXPECT_EQ(book.at("router").at("sees"), "w:1");
    running->Stop();
  };
  const auto see = [](const AddressBook& book) -> std::vector<std::string> {
    return {book.at("worker").at("grpc")};
  };
  Supervisor supervisor({Shell("router", "echo ready sees=$1; exec cat", 1, see),
                         Shell("worker", "echo ready grpc=w:1; exec cat")},
                        Quick(), listener);
  running = &supervisor;
  EXPECT_TRUE(supervisor.Run().ok());
  EXPECT_THAT(order,
              ::testing::ElementsAre("worker+", "worker!", "router+", "router!", "router-", "worker-"));
}

TEST(SupervisorTest, GivesUpOnAProcessThatKeepsDying) {
  SupervisorOptions options = Quick();
  options.max_quick_deaths = 3;
  int deaths = 0;
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) { deaths += event.kind == Kind::kDied; };
  ProcessSpec bad = Shell("bad", "echo ready; echo the disk is on fire >&2; kill -SEGV $$");
  bad.vital_group = "bad";
  Supervisor supervisor({Shell("good", "echo ready; exec cat"), bad}, options, listener);
  const absl::Status status = supervisor.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bad died 3 times"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("killed by SIGSEGV"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the disk is on fire"));
  EXPECT_EQ(deaths, 3);
}

// Once everything has been ready, a process is tried again and again while the rest of its group lives.
TEST(SupervisorTest, TriesARedundantProcessEverMoreSlowly) {
  SupervisorOptions options = Quick();
  options.max_quick_deaths = 3;
  options.slow_delay = absl::Milliseconds(40);
  std::map<std::string, pid_t> pids;
  std::vector<absl::Duration> delays;
  bool up = false;
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) {
    if (event.kind == Kind::kReady) {
      pids[event.name] = event.pid;
      // Every life of "one" is short from now on; "two" dies with it once it has been tried slowly.
      if (up && event.name == "one") kill(event.pid, SIGKILL);
      if (up && event.name == "two" && delays.size() >= 7) kill(event.pid, SIGKILL);
    }
    if (event.kind != Kind::kDied || event.name != "one") return;
    if (!event.restart_in.has_value()) return;  // the end: "two" is away, too
    delays.push_back(*event.restart_in);
    EXPECT_EQ(event.quick_deaths, delays.size() < 3 ? 0 : static_cast<int>(delays.size()));
    if (delays.size() == 7) kill(pids["two"], SIGKILL);
  };
  listener.ready = [&](const AddressBook&) {
    if (std::exchange(up, true)) return;
    kill(pids["one"], SIGKILL);
  };
  ProcessSpec one = Shell("one", "echo ready; exec cat"), two = one;
  two.name = "two";
  one.vital_group = two.vital_group = "pair";
  Supervisor supervisor({one, two, Shell("spare", "echo ready; exec cat")}, options, listener);
  const absl::Status status = supervisor.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << "none of the pair is left";
  ASSERT_GE(delays.size(), 7u);
  const auto ms = [](int n) { return absl::Milliseconds(n); };
  EXPECT_THAT(std::vector(delays.begin(), delays.begin() + 7),
              ::testing::ElementsAre(ms(1), ms(2), ms(4), ms(8), ms(16), ms(32), ms(40)));
}

TEST(SupervisorTest, DoesForEverWithoutAProcessThatIsNotVital) {
  SupervisorOptions options = Quick();
  options.max_quick_deaths = 2;
  Supervisor* running = nullptr;
  int deaths = 0;
  bool up = false;
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) {
    if (event.kind == Kind::kReady && event.name == "extra" && up) kill(event.pid, SIGKILL);
    if (event.kind == Kind::kDied && ++deaths == 6) running->Stop();
  };
  listener.ready = [&](const AddressBook& book) {
    if (!std::exchange(up, true)) kill(std::stoi(book.at("extra").at("pid")), SIGKILL);
  };
  options.slow_delay = absl::Milliseconds(2);
  ProcessSpec vital = Shell("vital", "echo ready; exec cat");
  vital.vital_group = "vital";
  Supervisor supervisor({vital, Shell("extra", "echo ready pid=$$; exec cat")}, options, listener);
  running = &supervisor;
  EXPECT_TRUE(supervisor.Run().ok());
  EXPECT_EQ(deaths, 6);
}

TEST(SupervisorTest, ARedundantProcessThatHangsAtARestartIsKilledAndTriedAgain) {
  SupervisorOptions options = Quick();
  options.start_timeout = absl::Seconds(3);  // a start on a busy machine is no hang
  const std::string mark = ::testing::TempDir() + "/hang-" + std::to_string(getpid());
  Supervisor* running = nullptr;
  std::vector<std::string> reasons;
  bool up = false;
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) {
    if (event.kind != Kind::kDied) return;
    reasons.push_back(event.reason);
    if (reasons.size() == 2) unlink(mark.c_str());
  };
  listener.ready = [&](const AddressBook& book) {
    if (std::exchange(up, true)) return running->Stop();
    close(open(mark.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    kill(std::stoi(book.at("one").at("pid")), SIGTERM);
  };
  Supervisor supervisor({Shell("one", "test -e " + mark + " || echo ready pid=$$; exec cat")}, options,
                        listener);
  running = &supervisor;
  EXPECT_TRUE(supervisor.Run().ok());
  ASSERT_GE(reasons.size(), 2u);
  EXPECT_EQ(reasons[0], "killed by SIGTERM");
  EXPECT_EQ(reasons[1], "killed by SIGKILL");
}

TEST(SupervisorTest, ARefusalBeforeReadyIsNotTriedAgain) {
  int starts = 0;
  Supervisor::Listener listener;
  listener.event = [&](const ProcessEvent& event) { starts += event.kind == Kind::kStarted; };
  Supervisor supervisor({Shell("worker", "printf 'no such model' >&2; exit 3")}, Quick(), listener);
  const absl::Status status = supervisor.Run();
  EXPECT_EQ(starts, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ended before it was ready (exit code 3)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such model"))
      << "a last line without line break counts";
}

TEST(SupervisorTest, AProcessThatIsNeverReadyIsAnError) {
  SupervisorOptions options = Quick();
  options.start_timeout = absl::Milliseconds(50);
  Supervisor supervisor({Shell("slow", "exec cat")}, options, {});
  EXPECT_THAT(std::string(supervisor.Run().message()), HasSubstr("slow was not ready within 50ms"));
}

TEST(SupervisorTest, AProgramThatIsNotThereIsAnError) {
  Supervisor supervisor(
      {{"ghost", "/no/such/program", [](const AddressBook&) { return std::vector<std::string>(); }}}, Quick(),
      {});
  const absl::Status status = supervisor.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/program"));
}

TEST(SupervisorTest, KillsWhatDoesNotLeaveInTime) {
  SupervisorOptions options = Quick();
  options.stop_grace = absl::Milliseconds(50);
  Supervisor* running = nullptr;
  std::string reason;
  Supervisor::Listener listener;
  listener.ready = [&](const AddressBook&) { running->Stop(); };
  listener.event = [&](const ProcessEvent& event) {
    if (event.kind == Kind::kStopped) reason = event.reason;
  };
  Supervisor supervisor(
      {Shell("stubborn", "trap '' TERM; echo ready; while :; do read x || sleep 0.1; done")}, options,
      listener);
  running = &supervisor;
  EXPECT_TRUE(supervisor.Run().ok());
  EXPECT_EQ(reason, "did not leave within 50ms and was killed");
}

TEST(SupervisorTest, StopsFromAnotherThreadAndFromADescriptor) {
  for (const bool by_descriptor : {false, true}) {
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    SupervisorOptions options = Quick();
    options.stop_fd = fds[0];
    absl::Notification ready;
    Supervisor::Listener listener;
    listener.ready = [&](const AddressBook&) { ready.Notify(); };
    Supervisor supervisor({Shell("worker", "echo ready; exec cat")}, options, listener);
    std::thread stopper([&] {
      ready.WaitForNotification();
      if (by_descriptor) {
        EXPECT_EQ(write(fds[1], "12345678", 8), 8);
      } else {
        supervisor.Stop();
      }
    });
    EXPECT_TRUE(supervisor.Run().ok());
    stopper.join();
    close(fds[0]);
    close(fds[1]);
  }
}

TEST(SupervisorTest, LinesAreWholeAndEndless) {
  std::vector<size_t> lengths;
  Supervisor* running = nullptr;
  Supervisor::Listener listener;
  listener.log = [&](const std::string&, std::string_view line) { lengths.push_back(line.size()); };
  listener.ready = [&](const AddressBook&) { running->Stop(); };
  // 100,000 bytes without a line break must not pile up.
  Supervisor supervisor(
      {Shell("loud",
             "printf 'a\\nbc\\n'; head -c 100000 /dev/zero | tr '\\0' x; echo; echo ready; exec cat")},
      Quick(), listener);
  running = &supervisor;
  EXPECT_TRUE(supervisor.Run().ok());
  ASSERT_GE(lengths.size(), 3u);
  EXPECT_EQ(lengths[0], 1u);
  EXPECT_EQ(lengths[1], 2u);
  size_t rest = 0;
  for (size_t i = 2; i < lengths.size(); ++i) {
    rest += lengths[i];
    EXPECT_LT(lengths[i], 32u << 10);
  }
  EXPECT_EQ(rest, 100000u);
}

// The supervisor dies by SIGKILL, so it can't do anything for its processes; one of them even ignores the end
// of its input and SIGTERM.
TEST(SupervisorTest, ProcessesDieWithAKilledSupervisor) {
  int pids[2];
  ASSERT_EQ(pipe(pids), 0);
  const pid_t supervising = fork();
  ASSERT_GE(supervising, 0);
  if (supervising == 0) {
    std::vector<pid_t> started;
    Supervisor::Listener listener;
    listener.event = [&](const ProcessEvent& event) {
      if (event.kind == Kind::kReady) started.push_back(event.pid);
    };
    listener.ready = [&](const AddressBook&) {
      [[maybe_unused]] const ssize_t written = write(pids[1], started.data(), started.size() * sizeof(pid_t));
    };
    Supervisor supervisor(
        {Shell("meek", "echo ready; exec cat"),
         Shell("stubborn", "trap '' TERM; echo ready; while :; do read x || sleep 0.1; done")},
        Quick(), listener);
    _exit(supervisor.Run().ok() ? 0 : 1);
  }
  pid_t children[2];
  ASSERT_EQ(read(pids[0], children, sizeof(children)), static_cast<ssize_t>(sizeof(children)));
  const int first = OpenPidfd(children[0]);
  const int second = OpenPidfd(children[1]);
  ASSERT_GE(first, 0);
  ASSERT_GE(second, 0);
  kill(supervising, SIGKILL);
  EXPECT_TRUE(EndsInTime(first));
  EXPECT_TRUE(EndsInTime(second));
  waitpid(supervising, nullptr, 0);
  for (const int fd : {first, second, pids[0], pids[1]}) close(fd);
}

}  // namespace
}  // namespace baton::cli
