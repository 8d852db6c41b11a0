#include "engine/kernels/cuda/proof_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"

namespace baton::kernels::cuda {
namespace {

// Bytes of the process's output that are kept, from its start.
constexpr size_t kMostText = 2048;
// Between looks at a process that was killed, and how many: one that is stuck in the driver can't be waited
// for.
constexpr int kReapMilliseconds = 10, kReapTries = 100;

// Reads until the other end is closed. False if that takes until `deadline`.
bool ReadAll(int fd, absl::Time deadline, std::string& text) {
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0) return false;
    pollfd readable = {fd, POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) <= 0) continue;
    char buffer[512];
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(buffer, std::min(static_cast<size_t>(count), kMostText - std::min(kMostText, text.size())));
  }
}

void Kill(pid_t child) {
  (void)kill(child, SIGKILL);
  for (int i = 0; i < kReapTries && waitpid(child, nullptr, WNOHANG) == 0; ++i)
    (void)poll(nullptr, 0, kReapMilliseconds);
}

}  // namespace

absl::Status RunProof(std::span<const std::string> command, int device, absl::Duration limit) {
  std::vector<std::string> words(command.begin(), command.end());
  words.push_back(std::to_string(device));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::InternalError(fmt::format("a pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::InternalError(fmt::format("starting {}: {}", words[0], std::strerror(error)));
  }
  std::string text;
  const bool ended = ReadAll(ends[0], absl::Now() + limit, text);
  close(ends[0]);
  if (!ended) {
    Kill(child);
    return absl::DeadlineExceededError(fmt::format("no end within {}", absl::FormatDuration(limit)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  const std::string said(absl::StripAsciiWhitespace(text));
  if (WIFSIGNALED(status)) {
    return absl::InternalError(fmt::format("its process was ended by signal {} ({}){}{}", WTERMSIG(status),
                                           strsignal(WTERMSIG(status)), said.empty() ? "" : ": ", said));
  }
  return absl::InternalError(said.empty() ? fmt::format("its process ended with {}", WEXITSTATUS(status))
                                          : said);
}

}  // namespace baton::kernels::cuda
