#include "router/api/load_report.h"

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace baton::router {
namespace {

class LoadReportTest : public ::testing::Test {
 protected:
  // The report that the end of a call brings.
  xds::data::orca::v3::OrcaLoadReport End(const absl::Status& status = absl::OkStatus()) {
    xds::data::orca::v3::OrcaLoadReport report;
    const std::string told = load_.OnEnded(status);
    told_ = !told.empty();
    EXPECT_TRUE(report.ParseFromString(told));
    return report;
  }

  FakeClock clock_;
  LoadReport::Sample sample_;
  LoadReport load_{{.cores = 4, .threads = 2, .sample = [this] { return sample_; }}, clock_};
  bool told_ = false;
};

TEST_F(LoadReportTest, TellsTheLastPeriodAndNothingBefore) {
  End();
  EXPECT_FALSE(told_);
  sample_ = {.cpu = absl::Seconds(2), .busy = absl::Seconds(1), .kv_used = 0.25, .waiting = 3};
  clock_.Advance(absl::Seconds(2));
  // Two calls in two seconds, with 2 s of CPU on 4 cores and 1 s of 2 threads.
  const auto report = End();
  EXPECT_TRUE(told_);
  EXPECT_DOUBLE_EQ(report.rps_fractional(), 1);
  EXPECT_DOUBLE_EQ(report.eps(), 0);
  EXPECT_DOUBLE_EQ(report.cpu_utilization(), 0.25);
  EXPECT_DOUBLE_EQ(report.application_utilization(), 0.25);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("kv_used"), 0.25);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("queue"), 3);

  sample_.busy += absl::Milliseconds(1'500);
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(End().rps_fractional(), 1) << "of the same period";
  clock_.Advance(absl::Seconds(1));
  const auto next = End();
  EXPECT_DOUBLE_EQ(next.rps_fractional(), 10);
  EXPECT_DOUBLE_EQ(next.cpu_utilization(), 0);
  EXPECT_DOUBLE_EQ(next.application_utilization(), 0.75) << "its threads are what is short";
}

TEST_F(LoadReportTest, CountsFaultsOfTheServiceAlone) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kInternal, absl::StatusCode::kCancelled,
        absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kInvalidArgument}) {
    End(absl::Status(code, "why"));
  }
  clock_.Advance(absl::Seconds(2));
  const auto report = End();
  EXPECT_DOUBLE_EQ(report.rps_fractional(), 3);
  EXPECT_DOUBLE_EQ(report.eps(), 1);
}

// A job of a minute is counted when it is done.
TEST_F(LoadReportTest, ALongJobIsNoMoreThanAllOfTheThreads) {
  sample_.busy = absl::Seconds(60);
  clock_.Advance(absl::Seconds(1));
  EXPECT_DOUBLE_EQ(End().application_utilization(), 1);
}

TEST(ProcessCpuTest, Grows) {
  const absl::Duration before = ProcessCpu();
  while (ProcessCpu() == before) {
  }
  EXPECT_GT(ProcessCpu(), before);
}

}  // namespace
}  // namespace baton::router
