#include "common/telemetry/process.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>

namespace baton::telemetry {
namespace {

// Global, as the process's standard error is.
std::atomic<int64_t> lost_log_lines = 0;

prometheus::MetricFamily Family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {name, help, type, {metric}};
}

// Seconds since 1970 at which this process began: the boot's time plus field 22 of /proc/self/stat, see
// proc(5).
double StartTime() {
  std::ifstream boot("/proc/stat");
  std::string word;
  double boot_time = 0;
  while (boot >> word && word != "btime") boot.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  boot >> boot_time;
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The name, field 2, may hold anything, but it ends with the last parenthesis.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  for (int field = 3; field < 22; ++field) fields >> word;
  double ticks = 0;
  fields >> ticks;
  return boot_time + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;

  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    families.push_back(Family("process_cpu_seconds_total", "User and system CPU time", MetricType::Counter,
                              seconds(usage.ru_utime) + seconds(usage.ru_stime)));
  }
  int64_t virtual_pages = 0, resident_pages = 0;
  if (std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages) {
    families.push_back(Family("process_resident_memory_bytes", "Resident memory", MetricType::Gauge,
                              static_cast<double>(resident_pages * sysconf(_SC_PAGESIZE))));
  }
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  if (!error) {
    // Less the one that lists them.
    families.push_back(Family("process_open_fds", "Open files", MetricType::Gauge,
                              static_cast<double>(std::distance(entry, {}) - 1)));
  }
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    families.push_back(Family("process_max_fds", "Files that may be open", MetricType::Gauge,
                              static_cast<double>(files.rlim_cur)));
  }
  families.push_back(Family("process_start_time_seconds", "When the process began, in seconds since 1970",
                            MetricType::Gauge, StartTime()));

  families.push_back(Family("baton_log_lines_lost_total", "Lines of the log that standard error did not take",
                            MetricType::Counter, static_cast<double>(lost_log_lines)));

  prometheus::MetricFamily build =
      Family("baton_build_info", "1; the version is a label", MetricType::Gauge, 1);
  build.metric[0].label.push_back({"version", BATON_VERSION});
  families.push_back(std::move(build));
  return families;
}

void CountLostLogLine() { ++lost_log_lines; }

}  // namespace baton::telemetry
