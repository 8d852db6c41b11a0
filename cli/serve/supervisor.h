// Supervisor: keeps a set of processes running. It starts them stage by stage, learns their addresses from
// the ready line of each ("ready grpc=host:port metrics=host:port" on standard output), restarts dead ones on
// the same addresses with growing delays, gives up when too many keep dying, and ends them all in order.
// Run() is the owner thread and must outlive the processes (see Child); Stop() may be called on any thread.
// It knows nothing of what the processes do.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/serve/child.h"
#include "common/base/clock.h"

namespace baton::cli {

// The endpoints in a ready line: "grpc" -> "127.0.0.1:4000".
using Endpoints = std::map<std::string, std::string>;
// By process name, as last announced; entries outlive a death, so that a restart finds its old address.
using AddressBook = std::map<std::string, Endpoints>;

// Empty unless `line` is a ready line.
std::optional<Endpoints> ParseReadyLine(std::string_view line);

struct ProcessSpec {
  // Unique; prefixes the log lines.
  std::string name;
  std::string program;
  // Called at every start.
  std::function<std::vector<std::string>(const AddressBook&)> arguments;
  // A stage starts when all lower ones are ready, and ends before them.
  int stage = 0;
  // Processes that can replace one another have the same group; the service ends when all of a group
  // keep dying. Empty: the service can run without this process.
  std::string vital_group = {};
};

struct SupervisorOptions {
  // Delay before a restart: doubles with every quick death in a row.
  absl::Duration first_delay = absl::Milliseconds(200);
  absl::Duration max_delay = absl::Seconds(5);
  // A death sooner than this after the start counts as quick.
  absl::Duration quick = absl::Seconds(10);
  // A process with this many quick deaths in a row keeps dying: before everything has been ready once, or
  // when all of its group do, it ends the service; otherwise the delay keeps doubling, up to slow_delay.
  int max_quick_deaths = 5;
  absl::Duration slow_delay = absl::Minutes(1);
  // From start to ready line.
  absl::Duration start_timeout = absl::Minutes(5);
  // From SIGTERM to SIGKILL, per stage.
  absl::Duration stop_grace = absl::Seconds(15);
  // Stop() for code that has a descriptor instead: each read from it (8 bytes or more at a time) is one
  // Stop().
  int stop_fd = -1;
  // The end of its input is one Stop(): a parent that died. What comes before the end is dropped.
  int parent_fd = -1;
};

struct ProcessEvent {
  enum class Kind { kStarted, kReady, kDied, kStopped };
  Kind kind;
  std::string name;
  pid_t pid = 0;
  // kReady: how often it has been restarted, and where it is.
  int restarts = 0;
  Endpoints endpoints = {};
  // kDied and kStopped: how.
  std::string reason = {};
  // kDied: when it is started again (empty: not at all).
  std::optional<absl::Duration> restart_in = {};
  // kDied: quick deaths in a row, if so many that the service continues without it; else 0.
  int quick_deaths = 0;
  // kStopped: by SIGKILL, its grace time was over.
  bool forced = false;
};

class Supervisor {
 public:
  // All called on Run()'s thread.
  struct Listener {
    std::function<void(const ProcessEvent&)> event = [](const ProcessEvent&) {};
    // A line that a process wrote (without its line break).
    std::function<void(const std::string& name, std::string_view line)> log = [](const std::string&,
                                                                                 std::string_view) {};
    // Everything is ready: after the start, and after every restart.
    std::function<void(const AddressBook&)> ready = [](const AddressBook&) {};
  };

  Supervisor(std::vector<ProcessSpec> specs, const SupervisorOptions& options, Listener listener);
  ~Supervisor();

  // Returns when all processes have ended: OK after Stop(); ABORTED with the last output of the process that
  // could not be kept running; or the error of one that could not be started at all.
  absl::Status Run();
  // Ends the processes in order; a second call kills them.
  void Stop();

 private:
  struct Process;

  void StartDue();
  void Start(Process& process);
  bool StageOpen(int stage) const;
  absl::Duration NextDeadline() const;
  void PollOnce();
  void ReadLines(Process& process, int fd, bool output);
  void TakeLine(Process& process, std::string_view line, bool output);
  void OnEnd(Process& process, const ExitStatus& status);
  void CheckDeadlines();
  void GiveUp(const Process& process, const std::string& what);
  void OnStopRequest();
  void ContinueStop();
  bool AllReady() const;
  bool KeepsDying(const Process& process) const;
  bool CanDoWithout(const Process& process) const;
  absl::Duration RestartDelay(const Process& process) const;

  std::vector<Process> processes_;
  const SupervisorOptions options_;
  const Listener listener_;
  MonotonicClock clock_;
  AddressBook book_;
  Descriptor stop_event_;
  bool was_all_ready_ = false;
  bool stopping_ = false;
  bool parent_gone_ = false;
  absl::Status result_;
};

}  // namespace baton::cli
