// Workers built with CUDA, started with --backend cuda as an operator starts them. On a machine without a
// driver, which is where CI builds them, they leave at once and say what to do; with one they get ready.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "cli/serve/child.h"
#include "tests/patience.h"

namespace baton::gpu {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kPatienceMilliseconds = Scaled(120'000);

struct Outcome {
  std::string output, errors;
  std::optional<cli::ExitStatus> status;  // none: it got ready
};

Outcome Start(const std::string& program, const std::vector<std::string>& arguments) {
  auto child = cli::Child::Spawn(BATON_BINARY_DIR "/bin/" + program, arguments);
  Outcome outcome;
  EXPECT_TRUE(child.ok()) << child.status();
  if (!child.ok()) return outcome;
  while (!outcome.status.has_value() && outcome.output.find("ready ") == std::string::npos) {
    pollfd fds[3] = {
        {child->ended_fd(), POLLIN, 0}, {child->output_fd(), POLLIN, 0}, {child->error_fd(), POLLIN, 0}};
    if (poll(fds, 3, kPatienceMilliseconds) <= 0) {
      ADD_FAILURE() << program << " neither starts nor ends: " << outcome.errors;
      break;
    }
    const bool ended = fds[0].revents != 0;
    char buffer[4096];
    for (auto [fd, text] :
         {std::pair(child->output_fd(), &outcome.output), std::pair(child->error_fd(), &outcome.errors)}) {
      for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
        text->append(buffer, static_cast<size_t>(n));
    }
    if (ended) outcome.status = child->Reap();
  }
  child->Signal(SIGKILL);
  return outcome;
}

class CudaStartTest : public testing::TestWithParam<const char*> {};

TEST_P(CudaStartTest, GetsReadyOrSaysWhatToDo) {
  const Outcome outcome = Start(GetParam(), {"--model", BATON_SOURCE_DIR "/models/baton-tiny", "--backend",
                                             "cuda", "--kv-memory", "64MiB", "--exit-with-parent"});
  if (!outcome.status.has_value()) {
    EXPECT_THAT(outcome.output, HasSubstr("grpc="));
    return;
  }
  EXPECT_FALSE(outcome.status->signalled) << outcome.errors;
  EXPECT_EQ(outcome.status->value, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("--backend cuda"));
  EXPECT_THAT(outcome.errors,
              AnyOf(HasSubstr("see nvidia-smi, or use --backend cpu"), HasSubstr("Baton needs 8.0")));
}

TEST_P(CudaStartTest, TheNcclLinkWantsKvOnAGpu) {
  const Outcome outcome = Start(
      GetParam(), {"--model", BATON_SOURCE_DIR "/models/baton-tiny", "--backend", "cpu", "--link", "nccl"});
  ASSERT_TRUE(outcome.status.has_value()) << outcome.output;
  EXPECT_EQ(outcome.status->value, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("--link nccl moves KV between GPUs, and it is in host memory"));
}

INSTANTIATE_TEST_SUITE_P(Workers, CudaStartTest, testing::Values("baton-prefill", "baton-decode"),
                         [](const auto& info) { return std::string(info.param).substr(6); });

}  // namespace
}  // namespace baton::gpu
