#include "lab/bench/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace baton::lab::bench {

Machine ThisMachine() {
  Machine machine;
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) machine.cpu = line.substr(colon + 2);
    break;
  }
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  machine.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  utsname name;
  if (uname(&name) == 0) machine.kernel = std::string(name.sysname) + " " + name.release;
  return machine;
}

}  // namespace baton::lab::bench
