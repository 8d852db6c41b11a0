#include "worker/link_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace baton::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kStatus[] = "Name:\tbaton\nCapPrm:\tffffffffffffffff\nCapEff:\t0000000000000000\n";

LinkMachine WithRdma(std::optional<uint64_t> lockable) {
  return {.rdma_devices = {"uverbs0", "uverbs1"},
          .lockable = lockable,
          .memories = {"memory of GPU 0 (NVIDIA H200)"}};
}

TEST(LinkMachineTest, RefusesTcpInPlaceOfRdmaInWords) {
  const absl::Status status = CheckLinkMachine(WithRdma(8 << 20), true);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* word :
       {"--link nccl", "uverbs0, uverbs1", "8 MiB", "LimitMEMLOCK=infinity", "NCCL_IB_DISABLE=1"}) {
    EXPECT_THAT(status.message(), HasSubstr(word));
  }
  EXPECT_THAT(CheckLinkMachine(WithRdma(64 << 10), true).message(), HasSubstr("64 KiB"));
  EXPECT_FALSE(CheckLinkMachine(WithRdma(kMinLockable - 1), true).ok());
}

TEST(LinkMachineTest, TakesWhatIsEnough) {
  EXPECT_TRUE(CheckLinkMachine(WithRdma(kMinLockable), true).ok());
  EXPECT_TRUE(CheckLinkMachine(WithRdma(std::nullopt), true).ok());
  EXPECT_TRUE(CheckLinkMachine(WithRdma(0), false).ok()) << "NCCL was told to do without";
  LinkMachine none = WithRdma(0);
  none.rdma_devices.clear();
  EXPECT_TRUE(CheckLinkMachine(none, true).ok());
}

TEST(LinkMachineTest, RefusesSlicesOfGpus) {
  LinkMachine machine = WithRdma(std::nullopt);
  machine.memories.push_back("memory of GPU 1 (NVIDIA H200 MIG 3g.71gb)");
  EXPECT_THAT(CheckLinkMachine(machine, false).message(),
              HasSubstr("GPU 1 (NVIDIA H200 MIG 3g.71gb) is a slice"));
}

TEST(LinkMachineTest, TheCapabilityLiftsTheLimitIfItIsInEffect) {
  EXPECT_EQ(Lockable(kStatus, 4096), 4096u) << "permitted is not in effect";
  EXPECT_EQ(Lockable("CapEff:\t0000000000004000\n", 4096), std::nullopt);
  EXPECT_EQ(Lockable("CapEff:\t00000000a80425fb\n", 4096), 4096u) << "a container's usual ones";
  EXPECT_EQ(Lockable(kStatus, ~uint64_t{0}), std::nullopt);
  EXPECT_EQ(Lockable("", 4096), 4096u);
}

TEST(LinkMachineTest, LooksForDevices) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("machine-" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "dev" / "infiniband");
  for (const char* name : {"uverbs1", "uverbs0", "rdma_cm", "issm0"}) {
    std::ofstream(root / "dev" / "infiniband" / name) << "";
  }
  EXPECT_THAT(LookAtMachine(root).rdma_devices, ElementsAre("uverbs0", "uverbs1"));
  EXPECT_TRUE(LookAtMachine(root / "nowhere").rdma_devices.empty());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace baton::worker
