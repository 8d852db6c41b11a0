#include "tests/integration/cli/baton_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/check.h"

namespace baton::cli {
namespace {

// The machine may be loaded; a test that hangs still ends.
constexpr char kBinaries[] = BATON_BINARY_DIR "/bin/";

// In the child: makes `fd` lead to `sink`; `pipe` leads to the test.
void Lead(int fd, Sink sink, int pipe) {
  switch (sink) {
    case Sink::kRead:
      dup2(pipe, fd);
      return;
    case Sink::kFull:
      dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), fd);
      return;
    case Sink::kGone: {
      int ends[2];
      BATON_CHECK(pipe2(ends, O_CLOEXEC) == 0);
      dup2(ends[1], fd);
      close(ends[0]);
      return;
    }
    case Sink::kClosed:
      close(fd);
      return;
  }
}

std::vector<std::string> Named(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {path.substr(path.rfind('/') + 1)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

int ExitCode(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

Program::Program(std::string path, std::vector<std::string> arguments)
    : path_(std::move(path)), arguments_(std::move(arguments)) {
  // The same characters everywhere, and no colours to look past.
  const std::pair<const char*, const char*> ours[] = {{"LC_ALL", "C"}, {"NO_COLOR", "1"}, {"TERM", "xterm"}};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(ours, [&](const auto& our) { return name == our.first; })) {
      environment_.emplace_back(text);
    }
  }
  for (const auto& [name, value] : ours) environment_.push_back(std::string(name) + "=" + value);
  for (std::string& argument : arguments_) argv_.push_back(argument.data());
  argv_.push_back(nullptr);
  for (std::string& variable : environment_) envp_.push_back(variable.data());
  envp_.push_back(nullptr);
}

void Program::Exec() const {
  execve(path_.c_str(), argv_.data(), envp_.data());
  _exit(126);
}

Outcome RunBaton(const std::vector<std::string>& arguments, std::string_view input, Sink out, Sink err) {
  return RunProgram("baton", arguments, input, out, err);
}

Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                   std::string_view input, Sink out_sink, Sink err_sink) {
  const Program child(kBinaries + program, Named(program, arguments));
  int in[2], out[2], err[2];
  BATON_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  BATON_CHECK(pid >= 0);
  if (pid == 0) {
    dup2(in[0], 0);
    Lead(1, out_sink, out[1]);
    Lead(2, err_sink, err[1]);
    signal(SIGPIPE, SIG_DFL);  // the test ignores it
    child.Exec();
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  // Tests send less than a pipe holds. The command may end without reading it.
  signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const ssize_t written = write(in[1], input.data(), input.size());
  close(in[1]);
  Outcome outcome;
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* texts[2] = {&outcome.out, &outcome.err};
  for (int open = 2; open > 0;) {
    if (poll(fds, 2, kPatienceMs) <= 0) {
      kill(pid, SIGKILL);
      outcome.err += "\n(killed by the test: no output for " + std::to_string(kPatienceMs / 1000) + " s)";
      break;
    }
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t got = read(fds[i].fd, bytes, sizeof(bytes));
      if (got > 0) {
        texts[i]->append(bytes, got);
      } else {
        fds[i].fd = -1;
        --open;
      }
    }
  }
  close(out[0]);
  close(err[0]);
  outcome.code = ExitCode(pid);
  return outcome;
}

BatonOnTerminal::BatonOnTerminal(const std::vector<std::string>& arguments, const std::string& binary) {
  const std::string path = binary.empty() ? std::string(kBinaries) + "baton" : binary;
  const Program child(path, Named(path, arguments));
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = 80;
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  BATON_CHECK(pid_ >= 0);
  if (pid_ == 0) child.Exec();
  // Both sides of a terminal have to move on: who only writes may wait for one that only writes.
  BATON_CHECK(fcntl(fd_, F_SETFL, O_NONBLOCK) == 0);
}

BatonOnTerminal::~BatonOnTerminal() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    ExitCode(pid_);
  }
  close(fd_);
}

void BatonOnTerminal::Type(std::string_view text) {
  while (!text.empty()) {
    pollfd fd = {fd_, POLLIN | POLLOUT, 0};
    BATON_CHECK(poll(&fd, 1, kPatienceMs) > 0) << "the terminal takes no more text";
    if ((fd.revents & POLLIN) != 0) BATON_CHECK(Read()) << "the command has ended";
    if ((fd.revents & POLLOUT) == 0) continue;
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written > 0) text.remove_prefix(written);
  }
}

bool BatonOnTerminal::Read() {
  pollfd fd = {fd_, POLLIN, 0};
  if (poll(&fd, 1, kPatienceMs) <= 0) return false;
  char bytes[4096];
  const ssize_t got = read(fd_, bytes, sizeof(bytes));
  if (got <= 0) return false;
  seen_.append(bytes, got);
  return true;
}

bool BatonOnTerminal::WaitFor(std::string_view text) {
  while (true) {
    if (const size_t at = seen_.find(text, searched_); at != std::string::npos) {
      searched_ = at + text.size();
      return true;
    }
    if (!Read()) return false;
  }
}

bool BatonOnTerminal::IsCooked() const {
  termios modes;
  BATON_CHECK(tcgetattr(fd_, &modes) == 0);
  return (modes.c_lflag & ICANON) != 0 && (modes.c_lflag & ECHO) != 0;
}

int BatonOnTerminal::Wait() {
  // Drains what it still prints, or it could block on a full terminal.
  WaitFor("\x01 never printed");
  const int code = ExitCode(pid_);
  pid_ = 0;
  return code;
}

}  // namespace baton::cli
