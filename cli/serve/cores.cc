#include "cli/serve/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <tuple>

namespace baton::cli {
namespace {

int ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : 0;
}

}  // namespace

std::vector<int> OwnCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<std::tuple<int, int, int>> by_core;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    by_core.emplace_back(ReadNumber(topology + "physical_package_id"), ReadNumber(topology + "core_id"), cpu);
  }
  std::sort(by_core.begin(), by_core.end());
  std::vector<int> cpus;
  for (const auto& [package, core, cpu] : by_core) cpus.push_back(cpu);
  return cpus;
}

CoreShares SplitCores(const std::vector<int>& cpus, int usable, int prefill_workers, int decode_workers) {
  const int all = std::max(1, usable);
  CoreShares shares;
  if (prefill_workers < 1 || all < 2) {
    shares.decode.threads = std::max(1, all / std::max(1, decode_workers));
    return shares;
  }
  const int workers = prefill_workers + decode_workers;
  const int prefill = std::clamp((all * prefill_workers + workers / 2) / workers, 1, all - 1);
  shares.prefill.threads = std::max(1, prefill / prefill_workers);
  shares.decode.threads = std::max(1, (all - prefill) / decode_workers);
  if (all < static_cast<int>(cpus.size())) return shares;
  shares.prefill.cpus.assign(cpus.begin(), cpus.begin() + prefill);
  shares.decode.cpus.assign(cpus.begin() + prefill, cpus.end());
  return shares;
}

}  // namespace baton::cli
