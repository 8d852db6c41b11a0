#include "tests/bench/router/measured_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "common/base/check.h"

namespace baton::bench {

double MeasuredProcess::CpuSeconds() const {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string field;
  double ticks = 0;
  for (int i = 3; i <= 15 && rest >> field; ++i) {
    if (i >= 14) ticks += std::stod(field);
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double MeasuredProcess::RssMiB() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double MeasuredProcess::PeakRssMiB() const {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib / 1024;
  }
  return 0;
}

// Reads a child's output up to the end of the first line that begins so.
std::string AwaitLine(const cli::Child& child, const std::string& beginning) {
  std::string output;
  while (true) {
    for (size_t at = 0, end; (end = output.find('\n', at)) != std::string::npos; at = end + 1) {
      if (output.compare(at, beginning.size(), beginning) == 0) return output.substr(at, end - at);
    }
    pollfd fd = {child.output_fd(), POLLIN, 0};
    BATON_CHECK(poll(&fd, 1, 120'000) > 0) << "no line \"" << beginning << "\"";
    char buffer[1 << 16];
    const ssize_t n = read(child.output_fd(), buffer, sizeof(buffer));
    if (n > 0) output.append(buffer, n);
    BATON_CHECK(n != 0) << "it ended: " << output;
  }
}

std::string AwaitGrpcAddress(const cli::Child& child) {
  const std::string ready = AwaitLine(child, "ready");
  const size_t at = ready.find("grpc=") + 5;
  return ready.substr(at, ready.find_first_of(" \n", at) - at);
}

}  // namespace baton::bench
