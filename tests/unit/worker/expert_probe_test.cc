#include "worker/expert_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/digest.h"

namespace baton::worker {
namespace {

using ::testing::HasSubstr;

// Pages of zeros, of which the first read is damaged.
class ZeroPages final : public model::FarMemory {
 public:
  std::string name() const override { return "pages of zeros"; }
  absl::Status Read(int64_t offset, std::span<std::byte> to) override {
    std::ranges::fill(to, std::byte{0});
    if (first_) to[0] = std::byte{1};
    first_ = false;
    return absl::OkStatus();
  }

 private:
  bool first_ = true;
};

TEST(ExpertProbeTest, ShowsWhatTheStoreCounts) {
  const std::vector<std::byte> page(model::kFarPage);
  model::ExpertIndex index;
  for (int32_t e = 0; e < 4; ++e) {
    index[{0, e}] = {.offset = (e + 1) * model::kFarPage, .bytes = model::kFarPage, .crc = Crc32c(page)};
  }
  const auto store = model::ExpertStore::Create(std::make_unique<ZeroPages>(), index, 2 * model::kFarPage, 1);
  ASSERT_TRUE(store.ok()) << store.status();
  telemetry::Metrics metrics;
  ExpertProbe probe(metrics, **store);
  probe.Observe();
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_stored 4"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_resident 0"));
  for (const int32_t last : {1, 2}) {
    const std::vector<model::ExpertId> ids = {{0, 0}, {0, last}};
    ASSERT_TRUE((*store)->Hold(ids).ok());
    (*store)->Release();
    probe.Observe();
    probe.Observe();
  }
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_uses_total{result=\"hit\"} 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_uses_total{result=\"miss\"} 3"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_read_bytes_total 16384"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_read_retries_total 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_resident 2"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_expert_resident_bytes 8192"));
  const std::string shown = metrics.Text();
  const auto value = [&shown](const std::string& name) {
    const size_t at = shown.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(shown.substr(at + name.size() + 2));
  };
  const model::ExpertStore::Stats stats = (*store)->stats();
  EXPECT_GT(stats.read_seconds, 0);
  EXPECT_NEAR(value("baton_expert_read_seconds_total"), stats.read_seconds, 1e-6);
  EXPECT_NEAR(value("baton_expert_stall_seconds_total"), stats.stall_seconds, 1e-6);
}

}  // namespace
}  // namespace baton::worker
