// `baton serve` and its two standard streams: they may fail, and on a terminal they show the traffic. The
// servers are shell scripts that say when they are up.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/telemetry/metrics.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Logs, says where it is, and tells the test its process id.
constexpr char kTalkingServer[] = R"(#!/bin/sh
echo "a line of the log" >&2
echo "ready grpc=127.0.0.1:$$ metrics=METRICS"
echo "${0##*/} $$" >FIFO
exec cat
)";

class ServeStreamsTest : public ::testing::Test {
 protected:
  ServeStreamsTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("streams-{}", getpid())) {
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "model");
    std::ofstream(folder_ / "model" / "config.json") << "{}";
    fs::copy_file(fs::path(BATON_BINARY_DIR) / "bin" / "baton", folder_ / "bin" / "baton");
    EXPECT_EQ(mkfifo((folder_ / "up").c_str(), 0600), 0);
    // For both: a server that opens it never waits.
    up_ = open((folder_ / "up").c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_GE(up_, 0);
    SetMetrics("");
  }
  ~ServeStreamsTest() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(up_);
    if (announced_ >= 0) close(announced_);
    fs::remove_all(folder_);
  }

  // Sets the address of the servers' metrics that they announce.
  void SetMetrics(const std::string& address) {
    for (const char* server : {"baton-router", "baton-prefill", "baton-decode"}) {
      const fs::path path = folder_ / "bin" / server;
      std::ofstream(path) << absl::StrReplaceAll(kTalkingServer,
                                                 {{"METRICS", address}, {"FIFO", (folder_ / "up").string()}});
      fs::permissions(path, fs::perms::owner_all);
    }
  }

  std::vector<std::string> Arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"serve",       "--model",   folder_ / "model", "--listen",
                                    "127.0.0.1:0", "--metrics", "127.0.0.1:0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string binary() const { return folder_ / "bin" / "baton"; }

  // Both streams to `fd`.
  void Start(int fd, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = Arguments(more);
    all.insert(all.begin(), binary());
    all.insert(all.end(), {"--announce", folder_ / "addresses.json"});
    // A new one: the service before may have told more often than the test asked.
    if (announced_ >= 0) close(announced_);
    announced_ = inotify_init1(IN_CLOEXEC);
    ASSERT_GE(inotify_add_watch(announced_, folder_.c_str(), IN_MOVED_TO), 0);
    const Program child(binary(), std::move(all));
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      signal(SIGPIPE, SIG_DFL);
      dup2(fd, STDOUT_FILENO);
      dup2(fd, STDERR_FILENO);
      child.Exec();
    }
  }

  // The process id of the next server that comes up; 0 if none does.
  pid_t NextUp(const std::string& server) {
    while (true) {
      for (size_t end; (end = came_up_.find('\n')) != std::string::npos;) {
        const std::string line = came_up_.substr(0, end);
        came_up_.erase(0, end + 1);
        if (line.rfind(server + " ", 0) == 0) return std::atoi(line.c_str() + server.size());
      }
      pollfd fd = {up_, POLLIN, 0};
      if (poll(&fd, 1, kPatienceMs) <= 0) return 0;
      char bytes[512];
      came_up_.append(bytes, std::max<ssize_t>(0, read(up_, bytes, sizeof(bytes))));
    }
  }

  // Everything came up and was told; a worker dies and comes back; SIGTERM ends it all. The exit code; -1: a
  // signal.
  int LiveAndLeave() {
    const pid_t decode = NextUp("baton-decode");
    EXPECT_GT(decode, 0);
    // The file with the addresses comes right before what is printed of them.
    pollfd announced = {announced_, POLLIN, 0};
    EXPECT_GT(poll(&announced, 1, kPatienceMs), 0) << "the service has gone";
    char event[4096];
    EXPECT_GT(read(announced_, event, sizeof(event)), 0);
    kill(decode, SIGKILL);
    EXPECT_GT(NextUp("baton-decode"), 0) << "the service has gone";
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const fs::path folder_;
  int up_ = -1;
  // Readable when the addresses were written.
  int announced_ = -1;
  std::string came_up_;
  pid_t pid_ = 0;
};

TEST_F(ServeStreamsTest, GoesOnWhereNothingCanBeWritten) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  Start(full);
  EXPECT_EQ(LiveAndLeave(), 0);
  Start(full, {"--json"});
  EXPECT_EQ(LiveAndLeave(), 1) << "somebody asked for the addresses and did not get them";
  close(full);
}

TEST_F(ServeStreamsTest, GoesOnWhenTheReaderOfItsLogsGoes) {
  for (const bool at_once : {true, false}) {
    int logs[2];
    ASSERT_EQ(pipe2(logs, O_CLOEXEC), 0);
    if (at_once) close(logs[0]);
    Start(logs[1]);
    close(logs[1]);
    std::string seen;
    while (!at_once && seen.find("Ctrl-C ends the service") == std::string::npos) {
      pollfd fd = {logs[0], POLLIN, 0};
      ASSERT_GT(poll(&fd, 1, kPatienceMs), 0);
      char bytes[4096];
      const ssize_t got = read(logs[0], bytes, sizeof(bytes));
      ASSERT_GT(got, 0) << seen;
      seen.append(bytes, got);
    }
    if (!at_once) close(logs[0]);
    EXPECT_EQ(LiveAndLeave(), 0) << (at_once ? "before the start" : "later");
  }
}

TEST_F(ServeStreamsTest, GoesOnWhenALogFileIsFull) {
  fs::create_directories(folder_ / "logs");
  fs::create_symlink("/dev/full", folder_ / "logs" / "decode-0.log");
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  Start(null, {"--log-dir", folder_ / "logs"});
  close(null);
  EXPECT_EQ(LiveAndLeave(), 0);
  std::ifstream other(folder_ / "logs" / "prefill-0.log");
  std::string line;
  std::getline(other, line);
  EXPECT_EQ(line, "a line of the log");
}

TEST_F(ServeStreamsTest, ATerminalShowsTheTraffic) {
  telemetry::Metrics metrics;
  auto page = telemetry::MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(page.ok()) << page.status();
  SetMetrics((*page)->address());
  BatonOnTerminal baton(Arguments(), binary());
  const pid_t decode = NextUp("baton-decode");
  ASSERT_TRUE(baton.WaitFor("Ctrl-C ends the service")) << baton.seen();
  ASSERT_TRUE(baton.WaitFor("\r0.0 requests/s, TTFT -, 0 tokens/s, - cached, 0 running\x1b[K"))
      << baton.seen();
  metrics.Counter("baton_router_requests_total", "", {{"outcome", "OK"}}).Increment(8);
  metrics.Counter("baton_router_requests_total", "", {{"outcome", "UNAVAILABLE"}}).Increment(2);
  auto& ttft = metrics.Histogram("baton_router_ttft_seconds", "", telemetry::TtftBuckets());
  for (int i = 0; i < 10; ++i) ttft.Observe(0.25);
  metrics.Counter("baton_router_answer_tokens_total", "").Increment(1000);
  metrics.Counter("baton_router_placed_tokens_total", "").Increment(200);
  metrics.Counter("baton_router_cached_tokens_total", "", {{"pool", "decode"}}).Increment(60);
  metrics.Counter("baton_router_cached_tokens_total", "", {{"pool", "prefill"}}).Increment(40);
  metrics.Gauge("baton_router_running", "").Set(3);
  ASSERT_TRUE(baton.WaitFor(" requests/s (2 failed), TTFT 250 ms, ")) << baton.seen();
  ASSERT_TRUE(baton.WaitFor(" tokens/s, 50% cached, 3 running\x1b[K")) << baton.seen();
  // Logs pass above the line, on lines of their own.
  kill(decode, SIGKILL);
  ASSERT_TRUE(baton.WaitFor("\r\x1b[Kbaton: decode-0 (pid ")) << baton.seen();
  ASSERT_TRUE(baton.WaitFor("requests/s")) << "and the line is there again: " << baton.seen();
  baton.Type("\x03");
  EXPECT_EQ(baton.Wait(), 0);
  EXPECT_THAT(baton.seen().substr(baton.seen().rfind("requests/s")), HasSubstr("\r\x1b[K"))
      << "it is taken away";
}

TEST_F(ServeStreamsTest, ALogShowsNoTraffic) {
  // Whoever wanted to show it would have to ask here.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  SetMetrics(fmt::format("127.0.0.1:{}", ntohs(address.sin_port)));
  const std::string path = folder_ / "serve.log";
  const int log = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  Start(log);
  close(log);
  EXPECT_EQ(LiveAndLeave(), 0);
  EXPECT_LT(accept(listener, nullptr, nullptr), 0) << "somebody asked for metrics";
  close(listener);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, HasSubstr("Ctrl-C ends the service"));
  EXPECT_THAT(text, Not(HasSubstr("requests/s")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace baton::cli
