#include "cli/serve/worker_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/core_table.h"

namespace baton::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Devices = std::vector<std::vector<int>>;

ServePlan TwoModels() {
  ServePlan plan;
  plan.models = {{.folder = "a", .name = "a"}, {.folder = "b", .name = "b", .process = "b"}};
  return plan;
}

std::vector<std::string> Sharers(const ServePlan& plan) {
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<ServedWorker>> sharers = SharersOfCores(plan);
  if (!sharers.ok()) return {std::string(sharers.status().message())};
  for (const ServedWorker& worker : *sharers) names.push_back(worker.name);
  return names;
}

TEST(WorkerPlacesTest, GpusAreDealtOverAllModels) {
  ServePlan plan = TwoModels();
  plan.worker_flags = {"--backend=cuda"};
  plan.models[1].decode_flags = {"--tp=2"};
  ASSERT_TRUE(PlaceOnGpus({}, &plan).ok());
  EXPECT_EQ(plan.models[0].prefill_devices, Devices({{0}}));
  EXPECT_EQ(plan.models[1].prefill_devices, Devices({{1}}));
  EXPECT_EQ(plan.models[0].decode_devices, Devices({{2}}));
  EXPECT_EQ(plan.models[1].decode_devices, Devices({{3, 4}}));
}

TEST(WorkerPlacesTest, OneRoleOrOneModelMayComputeOnGpus) {
  ServePlan plan = TwoModels();
  plan.models[1].decode_flags = {"--backend=cuda"};
  ASSERT_TRUE(PlaceOnGpus({}, &plan).ok());
  EXPECT_TRUE(plan.models[0].decode_devices.empty() && plan.models[1].prefill_devices.empty());
  EXPECT_EQ(plan.models[1].decode_devices, Devices({{0}}));
  EXPECT_THAT(Sharers(plan), ElementsAre("prefill-0", "prefill-b-0", "decode-0"));
}

TEST(WorkerPlacesTest, GpusSayHowManyWorkersAModelHasThatSaysNothing) {
  const NamedGpus named{
      .prefill = {0, 1}, .decode = {2, 3, 4, 5}, .count_prefill = true, .count_decode = true};
  ServePlan plan;
  plan.worker_flags = {"--backend=cuda", "--tp=2"};
  plan.models = {{.folder = "a", .name = "a"}};
  ASSERT_TRUE(PlaceOnGpus(named, &plan).ok());
  EXPECT_EQ(plan.models[0].prefill, 1);
  EXPECT_EQ(plan.models[0].decode_devices, Devices({{2, 3}, {4, 5}}));

  plan.models = {{.folder = "a", .name = "a", .counted = true}};
  EXPECT_THAT(PlaceOnGpus(named, &plan).message(),
              HasSubstr("--decode-devices names 4 GPU(s), and 1 decode worker(s)"));
  plan = TwoModels();
  plan.worker_flags = {"--backend=cuda"};
  EXPECT_THAT(PlaceOnGpus(named, &plan).message(),
              HasSubstr("--decode-devices names 4 GPU(s), and 2 decode worker(s)"));
}

TEST(WorkerPlacesTest, WhoeverSharesAGpuNeedsRoom) {
  const NamedGpus named{.prefill = {0, 1}, .decode = {2, 1}};
  ServePlan plan = TwoModels();
  plan.worker_flags = {"--backend=cuda"};
  EXPECT_THAT(PlaceOnGpus(named, &plan).message(),
              HasSubstr("GPU 1 is named for two workers, and prefill-b-0"));
  plan.models[1].flags = {"--kv-memory=1GiB"};
  ASSERT_TRUE(PlaceOnGpus(named, &plan).ok()) << "the other model shares none";
  plan.models[1].flags.push_back("--link=nccl");
  EXPECT_THAT(PlaceOnGpus(named, &plan).message(), HasSubstr("NCCL takes no two ranks on one GPU"));
}

TEST(WorkerPlacesTest, RanksAndGpusThatCanNotBe) {
  ServePlan plan = TwoModels();
  EXPECT_TRUE(PlaceOnGpus({}, &plan).ok());
  EXPECT_THAT(PlaceOnGpus({.decode = {0}}, &plan).message(), HasSubstr("no worker computes on one"));
  for (const char* const ranks : {"--tp=2000000000", "--tp=0", "--tp=x", "--tp"}) {
    plan.models[1].flags = {"--backend=cuda", ranks};
    EXPECT_THAT(PlaceOnGpus({}, &plan).message(), HasSubstr("is no number of ranks from 1 to 64")) << ranks;
  }
}

TEST(WorkerPlacesTest, WorkersWithThreadsOfTheirOwnShareNoCores) {
  ServePlan plan = TwoModels();
  plan.models.push_back({.folder = "g",
                         .name = "g",
                         .prefill = 0,
                         .sole_process = kModeratorName,
                         .common_flags = false,
                         .flags = {"--threads=1"}});
  EXPECT_THAT(Sharers(plan), ElementsAre("prefill-0", "prefill-b-0", "decode-0", "decode-b-0"));
  plan.models[1].flags = {"--threads=3"};
  EXPECT_THAT(Sharers(plan), ElementsAre("prefill-0", "decode-0"));
  plan.prefill_flags = {"--threads", "2"};
  EXPECT_THAT(Sharers(plan), ElementsAre("decode-0"));
  plan.decode_flags = {"--tp=2"};
  EXPECT_THAT(Sharers(plan), ElementsAre());
}

TEST(WorkerPlacesTest, TooManyWorkersForOneTableAreRefused) {
  ServePlan plan = TwoModels();
  plan.models[0].decode = device::CoreTable::kMostMembers - 3;
  EXPECT_TRUE(SharersOfCores(plan).ok());
  ++plan.models[0].decode;
  EXPECT_THAT(SharersOfCores(plan).status().message(), HasSubstr("give --threads"));
  plan.threads = 1;
  EXPECT_TRUE(SharersOfCores(plan).ok());
}

}  // namespace
}  // namespace baton::cli
