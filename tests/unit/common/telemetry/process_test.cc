#include "common/telemetry/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

namespace baton::telemetry {
namespace {

std::optional<prometheus::MetricFamily> Find(const std::string& name) {
  for (prometheus::MetricFamily& family : ProcessMetrics().Collect()) {
    if (family.name == name) return family;
  }
  return std::nullopt;
}

double Gauge(const std::string& name) {
  const auto family = Find(name);
  EXPECT_TRUE(family.has_value()) << name;
  return family->metric[0].gauge.value;
}

TEST(ProcessMetrics, CpuTimeGrowsWithWork) {
  const auto seconds = [] { return Find("process_cpu_seconds_total")->metric[0].counter.value; };
  const double before = seconds();
  volatile uint64_t work = 0;
  // Until the clock of CPU time has moved: it has, sooner or later, while this thread works.
  while (seconds() < before + 0.02) {
    for (int i = 0; i < 1000000; ++i) work = work + static_cast<uint64_t>(i);
  }
  EXPECT_GT(seconds(), before);
}

TEST(ProcessMetrics, OpenFilesAreCounted) {
  const double before = Gauge("process_open_fds");
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(Gauge("process_open_fds"), before + 1);
  close(fd);
  EXPECT_EQ(Gauge("process_open_fds"), before);
  EXPECT_GT(Gauge("process_max_fds"), before);
}

TEST(ProcessMetrics, MemoryIsResident) {
  EXPECT_GT(Gauge("process_resident_memory_bytes"), 1e6);
  EXPECT_LT(Gauge("process_resident_memory_bytes"), 1e15);
}

TEST(ProcessMetrics, BeganBeforeNowAndAfterTheBoot) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LE(Gauge("process_start_time_seconds"), now + 1);
  EXPECT_GT(Gauge("process_start_time_seconds"), now - 86400);
}

TEST(ProcessMetrics, TheBuildIsALabel) {
  const auto build = Find("baton_build_info");
  ASSERT_TRUE(build.has_value());
  EXPECT_EQ(build->metric[0].gauge.value, 1);
  EXPECT_EQ(build->metric[0].label[0].name, "version");
  EXPECT_FALSE(build->metric[0].label[0].value.empty());
}

}  // namespace
}  // namespace baton::telemetry
