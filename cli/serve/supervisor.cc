#include "cli/serve/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace baton::cli {
namespace {

// A process that writes no line break must not grow our memory.
constexpr size_t kMaxLine = 16 << 10;
constexpr size_t kLastWords = 8;

}  // namespace

struct Supervisor::Process {
  enum class State { kWaiting, kStarting, kReady, kEnded };

  ProcessSpec spec;
  State state = State::kWaiting;
  std::optional<Child> child;
  // kWaiting: when to start. kStarting and kReady: when it was started.
  absl::Time since = absl::InfinitePast();
  bool was_ready = false;
  int starts = 0;
  int quick_deaths = 0;
  // Not ready in time, and killed for it: as bad as a quick death.
  bool overdue = false;
  std::optional<absl::Time> terminated_at;
  bool killed = false;
  std::string output;
  std::string error;
  std::deque<std::string> last_words;
};

std::optional<Endpoints> ParseReadyLine(std::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(line.data(), line.size()), ' ', absl::SkipEmpty());
  if (words.empty() || words[0] != "ready") return std::nullopt;
  Endpoints endpoints;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos || equals == 0) return std::nullopt;
    endpoints[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  return endpoints;
}

Supervisor::Supervisor(std::vector<ProcessSpec> specs, const SupervisorOptions& options, Listener listener)
    : options_(options), listener_(std::move(listener)), stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  BATON_CHECK(stop_event_.get() >= 0);
  for (ProcessSpec& spec : specs) {
    Process process;
    process.spec = std::move(spec);
    processes_.push_back(std::move(process));
  }
}

Supervisor::~Supervisor() = default;

absl::Status Supervisor::Run() {
  while (true) {
    if (!stopping_) StartDue();
    if (stopping_) {
      ContinueStop();
      const bool all_ended = std::none_of(processes_.begin(), processes_.end(),
                                          [](const Process& process) { return process.child.has_value(); });
      if (all_ended) return result_;
    }
    PollOnce();
    CheckDeadlines();
  }
}

void Supervisor::Stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_event_.get(), &one, sizeof(one));
}

bool Supervisor::StageOpen(int stage) const {
  return std::all_of(processes_.begin(), processes_.end(), [stage](const Process& process) {
    return process.spec.stage >= stage || process.was_ready;
  });
}

bool Supervisor::AllReady() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.state == Process::State::kReady; });
}

bool Supervisor::KeepsDying(const Process& process) const {
  return process.state != Process::State::kReady && process.quick_deaths >= options_.max_quick_deaths;
}

bool Supervisor::CanDoWithout(const Process& process) const {
  if (!was_all_ready_) return false;
  if (process.spec.vital_group.empty()) return true;
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& other) {
    return other.spec.vital_group == process.spec.vital_group && !KeepsDying(other);
  });
}

absl::Duration Supervisor::RestartDelay(const Process& process) const {
  const absl::Duration most = KeepsDying(process) ? options_.slow_delay : options_.max_delay;
  absl::Duration delay = std::min(options_.first_delay, most);
  for (int i = 1; i < process.quick_deaths && delay < most; ++i) delay = std::min(2 * delay, most);
  return delay;
}

void Supervisor::StartDue() {
  const absl::Time now = clock_.Now();
  for (Process& process : processes_) {
    if (stopping_) return;
    if (process.state == Process::State::kWaiting && process.since <= now && StageOpen(process.spec.stage)) {
      Start(process);
    }
  }
}

void Supervisor::Start(Process& process) {
  process.since = clock_.Now();
  process.overdue = false;
  ++process.starts;
  process.output.clear();
  process.error.clear();
  process.last_words.clear();
  absl::StatusOr<Child> child = Child::Spawn(process.spec.program, process.spec.arguments(book_));
  if (!child.ok()) {
    result_ = child.status();
    stopping_ = true;
    return;
  }
  process.child = std::move(child).value();
  process.state = Process::State::kStarting;
  listener_.event(
      {.kind = ProcessEvent::Kind::kStarted, .name = process.spec.name, .pid = process.child->pid()});
}

absl::Duration Supervisor::NextDeadline() const {
  const absl::Time now = clock_.Now();
  absl::Duration next = absl::InfiniteDuration();
  for (const Process& process : processes_) {
    if (!stopping_ && process.state == Process::State::kWaiting && StageOpen(process.spec.stage)) {
      next = std::min(next, process.since - now);
    }
    if (!stopping_ && process.state == Process::State::kStarting && !process.overdue) {
      next = std::min(next, process.since + options_.start_timeout - now);
    }
    if (process.child.has_value() && process.terminated_at.has_value() && !process.killed) {
      next = std::min(next, *process.terminated_at + options_.stop_grace - now);
    }
  }
  return std::max(next, absl::ZeroDuration());
}

void Supervisor::PollOnce() {
  constexpr size_t kOwnFds = 3;
  std::vector<pollfd> fds = {{stop_event_.get(), POLLIN, 0},
                             {options_.stop_fd, POLLIN, 0},
                             {parent_gone_ ? -1 : options_.parent_fd, POLLIN, 0}};
  std::vector<Process*> owners;
  for (Process& process : processes_) {
    if (!process.child.has_value()) continue;
    owners.push_back(&process);
    for (const int fd : {process.child->output_fd(), process.child->error_fd(), process.child->ended_fd()}) {
      fds.push_back({fd, POLLIN, 0});
    }
  }
  // poll() counts whole milliseconds: round up, or the last one would spin.
  const absl::Duration wait = NextDeadline();
  const int timeout = wait == absl::InfiniteDuration()
                          ? -1
                          : static_cast<int>(absl::ToInt64Milliseconds(
                                absl::Ceil(std::min(wait, absl::Hours(1)), absl::Milliseconds(1))));
  if (poll(fds.data(), fds.size(), timeout) < 0) {
    BATON_CHECK(errno == EINTR) << "poll: " << errno;
    return;
  }
  char drop[512];
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    if (read(fds[i].fd, drop, sizeof(drop)) >= 0 || errno != EAGAIN) OnStopRequest();
  }
  if (fds[2].revents != 0 && read(fds[2].fd, drop, sizeof(drop)) <= 0) {
    parent_gone_ = true;
    OnStopRequest();
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    Process& process = *owners[i];
    const pollfd* polled = &fds[kOwnFds + 3 * i];
    const bool ended = polled[2].revents != 0;
    // At the end, whatever is left in the pipes: the last words matter most.
    if (polled[0].revents != 0 || ended) ReadLines(process, polled[0].fd, true);
    if (polled[1].revents != 0 || ended) ReadLines(process, polled[1].fd, false);
    if (!ended) continue;
    if (const std::optional<ExitStatus> status = process.child->Reap()) OnEnd(process, *status);
  }
}

void Supervisor::ReadLines(Process& process, int fd, bool output) {
  std::string& buffer = output ? process.output : process.error;
  char bytes[8192];
  while (true) {
    const ssize_t got = read(fd, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    buffer.append(bytes, got);
    size_t begin = 0;
    for (size_t end; (end = buffer.find('\n', begin)) != std::string::npos; begin = end + 1) {
      TakeLine(process, std::string_view(buffer).substr(begin, end - begin), output);
    }
    buffer.erase(0, begin);
    if (buffer.size() >= kMaxLine) {
      TakeLine(process, buffer, output);
      buffer.clear();
    }
  }
}

void Supervisor::TakeLine(Process& process, std::string_view line, bool output) {
  if (output && process.state == Process::State::kStarting) {
    if (std::optional<Endpoints> endpoints = ParseReadyLine(line)) {
      book_[process.spec.name] = *endpoints;
      process.state = Process::State::kReady;
      process.was_ready = true;
      listener_.event({.kind = ProcessEvent::Kind::kReady,
                       .name = process.spec.name,
                       .pid = process.child->pid(),
                       .restarts = process.starts - 1,
                       .endpoints = *std::move(endpoints)});
      if (AllReady() && !stopping_) {
        was_all_ready_ = true;
        listener_.ready(book_);
      }
      return;
    }
  }
  process.last_words.emplace_back(line);
  if (process.last_words.size() > kLastWords) process.last_words.pop_front();
  listener_.log(process.spec.name, line);
}

void Supervisor::OnEnd(Process& process, const ExitStatus& status) {
  const pid_t pid = process.child->pid();
  // A last line without a line break.
  for (const bool output : {true, false}) {
    std::string rest = std::move(output ? process.output : process.error);
    if (!rest.empty()) TakeLine(process, rest, output);
  }
  process.child.reset();
  process.state = Process::State::kEnded;
  if (stopping_) {
    listener_.event({.kind = ProcessEvent::Kind::kStopped,
                     .name = process.spec.name,
                     .pid = pid,
                     .reason = process.killed ? fmt::format("did not leave within {} and was killed",
                                                            absl::FormatDuration(options_.stop_grace))
                                              : status.Describe(),
                     .forced = process.killed});
    return;
  }
  const absl::Time now = clock_.Now();
  const bool quick = now - process.since < options_.quick || process.overdue;
  process.quick_deaths = quick ? process.quick_deaths + 1 : 1;
  ProcessEvent event{
      .kind = ProcessEvent::Kind::kDied, .name = process.spec.name, .pid = pid, .reason = status.Describe()};
  // An exit before it was ever ready is a refusal (a bad flag, model or port): trying again would only hide
  // it.
  const bool refused = !process.was_ready && !status.signalled;
  const bool hopeless = KeepsDying(process) && !CanDoWithout(process);
  if (!refused && !hopeless) {
    event.restart_in = RestartDelay(process);
    if (KeepsDying(process)) event.quick_deaths = process.quick_deaths;
    process.state = Process::State::kWaiting;
    process.since = now + *event.restart_in;
  }
  listener_.event(event);
  if (refused) {
    GiveUp(process, fmt::format("ended before it was ready ({})", status.Describe()));
  } else if (hopeless) {
    GiveUp(process, fmt::format("died {} times within {} of its start (last: {})", process.quick_deaths,
                                absl::FormatDuration(options_.quick), status.Describe()));
  }
}

void Supervisor::CheckDeadlines() {
  const absl::Time now = clock_.Now();
  for (Process& process : processes_) {
    if (!process.child.has_value()) continue;
    if (!stopping_ && process.state == Process::State::kStarting &&
        now >= process.since + options_.start_timeout) {
      if (!CanDoWithout(process)) {
        GiveUp(process, fmt::format("was not ready within {}", absl::FormatDuration(options_.start_timeout)));
      } else if (!process.overdue) {
        process.overdue = true;
        process.child->Signal(SIGKILL);
      }
    }
    if (process.terminated_at.has_value() && !process.killed &&
        now >= *process.terminated_at + options_.stop_grace) {
      process.killed = true;
      process.child->Signal(SIGKILL);
    }
  }
}

void Supervisor::GiveUp(const Process& process, const std::string& what) {
  std::string message = fmt::format("{} {}", process.spec.name, what);
  if (!process.last_words.empty()) {
    message += "; its last output:";
    for (const std::string& line : process.last_words) message += "\n  " + line;
  }
  result_ = absl::AbortedError(message);
  stopping_ = true;
}

void Supervisor::OnStopRequest() {
  if (!stopping_) {
    stopping_ = true;
    return;
  }
  for (Process& process : processes_) {
    if (process.child.has_value()) process.child->Signal(SIGKILL);
  }
}

void Supervisor::ContinueStop() {
  int stage = -1;
  for (const Process& process : processes_) {
    if (process.child.has_value()) stage = std::max(stage, process.spec.stage);
  }
  for (Process& process : processes_) {
    if (process.child.has_value() && process.spec.stage == stage && !process.terminated_at.has_value()) {
      process.terminated_at = clock_.Now();
      process.child->Signal(SIGTERM);
    }
  }
}

}  // namespace baton::cli
