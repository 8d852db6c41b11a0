// The three servers, when their log is not read: they continue to serve, report how many lines were lost, and
// leave with 0.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve/child.h"
#include "cli/serve/supervisor.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/http_get.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

constexpr int kPatienceMs = Scaled(120'000);

class LogTest : public ::testing::TestWithParam<const char*> {
 protected:
  // The server, with standard error on `fd`, until it is ready.
  void Start(int fd) {
    const std::string server = GetParam();
    std::vector<std::string> arguments = {"-c", "exec \"$0\" \"$@\" 2>&" + std::to_string(fd),
                                          BATON_BINARY_DIR "/bin/" + server, "--model", kModel};
    if (server == "baton-router") {
      // The file is logged, and its worker is not there.
      const std::string fleet = ::testing::TempDir() + "/log_test_fleet.json";
      std::ofstream(fleet) << R"({"decode": ["127.0.0.1:1"]})";
      arguments.insert(arguments.end(), {"--fleet-file", fleet});
    } else {
      arguments.insert(arguments.end(), {"--threads", "1", "--kv-memory", "16MiB"});
    }
    auto child = cli::Child::Spawn("/bin/sh", arguments);
    ASSERT_TRUE(child.ok()) << child.status();
    child_.emplace(*std::move(child));
    std::string output;
    while (output.find('\n') == std::string::npos) {
      pollfd ready = {child_->output_fd(), POLLIN, 0};
      ASSERT_GT(poll(&ready, 1, kPatienceMs), 0);
      char bytes[4096];
      const ssize_t got = read(child_->output_fd(), bytes, sizeof(bytes));
      ASSERT_GT(got, 0) << "it ended";
      output.append(bytes, got);
    }
    const auto endpoints = cli::ParseReadyLine(output.substr(0, output.find('\n')));
    ASSERT_TRUE(endpoints.has_value()) << output;
    metrics_ = endpoints->at("metrics");
  }

  double LostLines() const {
    const std::string page = HttpGet(metrics_, "/metrics");
    const std::string name = "\nbaton_log_lines_lost_total ";
    const size_t at = page.find(name);
    return at == std::string::npos ? -1 : std::atof(page.c_str() + at + name.size());
  }

  cli::ExitStatus Leave() {
    child_->Signal(SIGTERM);
    pollfd ended = {child_->ended_fd(), POLLIN, 0};
    EXPECT_GT(poll(&ended, 1, kPatienceMs), 0);
    return child_->Reap().value_or(cli::ExitStatus{true, SIGKILL});
  }

 private:
  std::optional<cli::Child> child_;
  std::string metrics_;
};
INSTANTIATE_TEST_SUITE_P(, LogTest, ::testing::Values("baton-router", "baton-prefill", "baton-decode"),
                         [](const auto& server) { return std::string(server.param).substr(6); });

TEST_P(LogTest, AFullDiskCostsLinesAndNothingElse) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Start(full);
  close(full);
  EXPECT_GE(LostLines(), 1);
  EXPECT_EQ(Leave().Describe(), "exit code 0");
}

TEST_P(LogTest, AReaderThatGoesCostsLinesAndNothingElse) {
  int logs[2];
  ASSERT_EQ(pipe(logs), 0);
  fcntl(logs[0], F_SETFD, FD_CLOEXEC);
  Start(logs[1]);
  close(logs[1]);
  EXPECT_EQ(LostLines(), 0);
  close(logs[0]);
  EXPECT_EQ(Leave().Describe(), "exit code 0") << "it logs that it leaves";
}

}  // namespace
}  // namespace baton::e2e
