#include "common/telemetry/load_watch.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/patience.h"

namespace baton::telemetry {
namespace {

constexpr char kFolder[] = "/srv/models/strange";
constexpr int64_t kMiB = int64_t{1} << 20;

class LoadWatchTest : public testing::Test {
 protected:
  LoadWatchTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void LogToStandardError() {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
}

// Until the watch ends this process.
void Hoard() {
  LogToStandardError();
  const LoadWatch watch(kFolder, {.memory = 64 * kMiB});
  std::vector<std::string> held;
  const auto grow = [&held] {
    if (held.size() < 32) held.emplace_back(8 * kMiB, 'x');
    return false;
  };
  Await(grow, "the end of this process");
}

void Compute() {
  LogToStandardError();
  const LoadWatch watch(kFolder, {.cpu = absl::Milliseconds(100)});
  volatile uint64_t sum = 0;
  const auto work = [&sum] {
    for (uint64_t i = 0; i < 10'000'000; ++i) sum = sum + i;
    return false;
  };
  Await(work, "the end of this process");
}

// A process may hold as much before, and do as much afterwards, as it likes.
void LoadModestly() {
  LogToStandardError();
  std::vector<std::string> held(16, std::string(8 * kMiB, 'x'));
  {
    const LoadWatch watch(kFolder, {.memory = 64 * kMiB});
    int looks = 0;
    Await([&looks] { return ++looks == 20; }, "20 looks");
  }
  held.resize(32, held[0]);
  _exit(0);
}

TEST_F(LoadWatchTest, TooMuchMemoryEndsTheProcess) {
  EXPECT_EXIT(Hoard(), testing::ExitedWithCode(1), "/srv/models/strange: .* more than 64 MiB of memory");
}

TEST_F(LoadWatchTest, TooMuchCpuTimeEndsTheProcess) {
  EXPECT_EXIT(Compute(), testing::ExitedWithCode(1), "/srv/models/strange: .* more than 0.1 s of CPU time");
}

TEST_F(LoadWatchTest, OnlyWhatIsTakenMeanwhileCounts) {
  EXPECT_EXIT(LoadModestly(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace baton::telemetry
