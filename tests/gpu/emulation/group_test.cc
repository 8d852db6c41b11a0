// The end of a group of ranks, over a NCCL whose aborts block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <thread>

#include "engine/kernels/cuda/nccl_communicators.h"
#include "tests/gpu/emulation/engine_sequence.h"
#include "tests/gpu/emulation/runtime.h"
#include "tests/gpu/emulation/scripted_nccl.h"

namespace baton::gpu {
namespace {

std::vector<ncclComm_t> TwoRanks() {
  std::vector<ncclComm_t> communicators(2);
  const int devices[] = {0, 1};
  EXPECT_EQ(ncclCommInitAll(communicators.data(), 2, devices), ncclSuccess);
  return communicators;
}

// Rank by rank, the first abort would wait for the second.
TEST(GroupEndTest, AnEngineOfTwoRanksOutlastsABlockedAbort) {
  emulation::StartMachine({.gpus = 2});
  auto engine = Load(2);
  ASSERT_NE(engine, nullptr);
  {
    Sequence sequence(*engine, 8);
    (void)sequence.Step(4, true);
  }
  emulation::BlockAborts(true);
  std::thread unblocks([] {
    emulation::AwaitABlockedAbort();
    emulation::BlockAborts(false);
  });
  engine.reset();
  unblocks.join();
}

TEST(GroupEndTest, AnAbortThatDoesNotComeBackIsNotWaitedForWithoutEnd) {
  emulation::BlockAborts(true);
  std::string told;
  {
    kernels::cuda::NcclCommunicators group(
        TwoRanks(), {.abort_deadline = absl::Milliseconds(20), .give_up = [&](const std::string& why) {
                       told = why;
                       emulation::BlockAborts(false);
                     }});
  }
  EXPECT_THAT(told, testing::HasSubstr("2 ranks has not come back in 20ms"));
}

TEST(GroupEndTest, AGroupEndsOnce) {
  bool gave_up = false;
  kernels::cuda::NcclCommunicators group(TwoRanks(),
                                         {.give_up = [&](const std::string&) { gave_up = true; }});
  group.Abort();
  group.Abort();
  EXPECT_TRUE(group.communicators().empty());
  EXPECT_FALSE(gave_up);
}

}  // namespace
}  // namespace baton::gpu
