#include "common/telemetry/load_watch.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <utility>

namespace baton::telemetry {
namespace {

// At two gigabytes a second, a memory that grows is 40 MB beyond the limit when that is seen.
constexpr absl::Duration kPeriod = absl::Milliseconds(20);

}  // namespace

LoadWatch::LoadWatch(std::string folder, const LoadLimits& limits)
    : folder_(std::move(folder)), limits_(limits), begin_(Now()) {
  thread_ = std::thread([this] { LookUntilStopped(); });
}

LoadWatch::~LoadWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

LoadWatch::Use LoadWatch::Now() {
  Use use;
  int64_t virtual_pages = 0, resident_pages = 0, file_pages = 0;
  if (std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages >> file_pages) {
    use.memory = (resident_pages - file_pages) * sysconf(_SC_PAGESIZE);
  }
  timespec cpu = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  use.cpu = absl::DurationFromTimespec(cpu);
  return use;
}

void LoadWatch::LookUntilStopped() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kPeriod)) return;
    }
    Look();
  }
}

void LoadWatch::Look() const {
  const Use now = Now();
  const int64_t memory = now.memory - begin_.memory;
  const absl::Duration cpu = now.cpu - begin_.cpu;
  if (memory <= limits_.memory && cpu <= limits_.cpu) return;
  const std::string limit = memory > limits_.memory
                                ? fmt::format("{} MiB of memory", limits_.memory >> 20)
                                : fmt::format("{:.3g} s of CPU time", absl::ToDoubleSeconds(limits_.cpu));
  spdlog::error(
      "{}: to load its tokenizer and try its chat template takes more than {}, which is more than any real "
      "model asks for; ending at once. Look at both before you trust this folder",
      folder_, limit);
  spdlog::default_logger_raw()->flush();
  _exit(1);
}

}  // namespace baton::telemetry
