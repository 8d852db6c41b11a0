#include "common/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace baton {
namespace {

// cgroup v2: "max 100000" or "<quota> <period>", in microseconds.
int QuotaCores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(quota / period)));
  }
  return std::numeric_limits<int>::max();
}

}  // namespace

int UsableCores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  return std::clamp(cores, 1, QuotaCores());
}

}  // namespace baton
