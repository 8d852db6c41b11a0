#include "cli/model/curl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_replace.h"
#include "cli/serve/child.h"

namespace baton::cli {
namespace {

// Configuration that `curl --config -` reads from standard input.
std::string Config(const Download& download) {
  if (download.token.empty()) return "";
  return fmt::format("header = \"Authorization: Bearer {}\"\n",
                     absl::StrReplaceAll(download.token, {{"\\", "\\\\"}, {"\"", "\\\""}}));
}

}  // namespace

absl::Status Curl(const Download& download) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "can't make a pipe");
  const Descriptor input(fds[0]);
  Descriptor output(fds[1]);
  // Far less than a pipe holds.
  const std::string config = Config(download);
  if (write(output.get(), config.data(), config.size()) != static_cast<ssize_t>(config.size())) {
    return absl::ErrnoToStatus(errno, "can't write to a pipe");
  }
  output.Reset();
  std::vector<std::string> arguments = {
      "curl", "--config",      "-", "--fail",   "--location",  "--globoff",   "--retry",
      "3",    "--continue-at", "-", "--output", download.file, "--show-error"};
  arguments.emplace_back(download.progress ? "--progress-bar" : "--silent");
  arguments.insert(arguments.end(), {"--url", download.url});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, "curl", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT)
    return absl::NotFoundError("there is no `curl` on this machine: install it (apt-get install curl)");
  if (error != 0) return absl::ErrnoToStatus(error, "can't run curl");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("can't download {}", download.url));
}

}  // namespace baton::cli
