// The fault matrix: every state of a hand-off x every fault, in one process and virtual time. Prints the
// table. The controls take a safeguard away and expect the table to turn red.
#include "tests/fault/matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/fault/table.h"

namespace baton::fault {
namespace {

void RunMatrix(const RigOptions& options, Share share) {
  TryAll(kStates, kFaults, share, [&](int state, int fault) {
    return TryCell(static_cast<State>(state), static_cast<Fault>(fault), options);
  });
}

TEST(FaultMatrixTest, EveryStateSurvivesEveryFault) { RunMatrix({}, {0, 4}); }

TEST(FaultMatrixTest, EveryStateSurvivesEveryFaultOverALinkWhoseWritesEndLate) {
  RunMatrix({.write_takes = absl::Milliseconds(5)}, {2, 4});
}

// Each rank holds its heads of a block; messages carry the heads of all.
TEST(FaultMatrixTest, EveryStateSurvivesEveryFaultBetweenGroupsOfRanks) {
  RunMatrix({.prefill_tp = 2, .decode_tp = 2}, {.one = 1, .of = 36, .of_all = 9});
}

TEST(FaultMatrixTest, EveryStateSurvivesEveryFaultFromTwoRanksToOne) {
  RunMatrix({.prefill_tp = 2, .decode_tp = 1}, {.one = 4, .of = 36, .of_all = 9});
}

// Anchor 13: memory is not freed while something in flight may still write it.
TEST(FaultMatrixTest, BlocksStayUntilTheLastWriteIsOver) {
  Rig rig({.write_takes = absl::Milliseconds(40)});
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (rig.decode[0].slow->writing() < 3) rig.Turn();
  rig.Cancel(request);
  int turns_under_write = 0;
  while (rig.decode[0].slow->writing() > 0) {
    rig.Turn();
    if (rig.decode[0].scheduler->sequences() > 0) continue;  // the cancel is on its way
    if (rig.decode[0].slow->writing() == 0) break;
    ++turns_under_write;
    EXPECT_GT(rig.decode[0].engine->pool().counts().held, 0) << "freed under a write";
  }
  EXPECT_GT(turns_under_write, 5);
  rig.Settle(absl::Seconds(1));
  EXPECT_EQ(rig.Leftovers(), "");
}

// Without the safeguard, these cells are red, and the undisturbed run still is not: it is the safeguard that
// holds them.
void ExpectRed(const Without& without, State state, const std::vector<Fault>& faults,
               const std::string& because) {
  EXPECT_EQ(TryCell(state, Fault::kNone, {.without = without}).wrong, "") << "red without a fault";
  for (Fault fault : faults) {
    const std::string name =
        fmt::format("{} x {}", kStates[static_cast<int>(state)], kFaults[static_cast<int>(fault)]);
    const Cell cell = TryCell(state, fault, {.without = without});
    std::printf("%s: %s\n", name.c_str(), cell.wrong.c_str());
    EXPECT_FALSE(cell.wrong.empty()) << name << " is not red";
    EXPECT_NE(cell.wrong.find(because), std::string::npos) << name << ": " << cell.wrong;
  }
}

TEST(NegativeControlTest, WithoutTheChecksumDamageBecomesTokens) {
  for (State state : {State::kRequested, State::kReceiving, State::kComputing}) {
    ExpectRed({.checksum = true}, state, {Fault::kTruncate}, "WRONG TOKENS");
  }
  // One bit may fall where no attention looks, so not every cell need turn red.
  int red = 0;
  for (State state : {State::kReserved, State::kRequested, State::kReceiving, State::kQueued,
                      State::kComputing, State::kShipped}) {
    red += !TryCell(state, Fault::kCorrupt, {.without = {.checksum = true}}).wrong.empty();
  }
  std::printf("one bit flipped, nobody looks: %d of 6 cells are red\n", red);
  EXPECT_GT(red, 0);
}

TEST(NegativeControlTest, WithoutTheFenceALateWriteBecomesTokens) {
  for (State state : {State::kCommitted, State::kRunning, State::kReleased}) {
    ExpectRed({.fence = true}, state, {Fault::kDuplicate, Fault::kReorder}, "WRONG TOKENS");
  }
}

TEST(NegativeControlTest, WithoutTheReleasePathBlocksLeak) {
  ExpectRed({.release = true}, State::kReceiving,
            {Fault::kClientCancel, Fault::kClientCrash, Fault::kRouterKill}, "LEAK");
  ExpectRed({.release = true}, State::kRunning, {Fault::kClientCancel, Fault::kRouterKill}, "LEAK");
  ExpectRed({.release = true}, State::kComputing, {Fault::kDecodeKill}, "LEAK");
}

}  // namespace
}  // namespace baton::fault
