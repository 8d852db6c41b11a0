// One test for each public failure of hand-offs that can occur in this design: N01 dynamo#7489, N02
// vllm#46283, N03 vllm#50754, N04 vllm#41269, N05 vllm#52234, N06 vllm#49238, N08 sglang#31144, N09
// sglang#29482, N10 sglang#31473, N11 tokenspeed#1427, N12 TensorRT-LLM#12313, N13 TensorRT-LLM#14565, N14
// vllm#42839, N18 llm-d#2370. Others are tested elsewhere: sglang#30233 and sglang#37160 (RelayTest),
// dynamo#4917 (LeavingTest).
#include <gtest/gtest.h>

#include "tests/fault/matrix.h"

namespace baton::fault {
namespace {

void ExpectGreen(State state, Fault fault) {
  EXPECT_EQ(TryCell(state, fault).wrong, "")
      << kStates[static_cast<int>(state)] << " x " << kFaults[static_cast<int>(fault)];
}

TEST(PublicFailureTest, N01AClientThatLeavesDuringTheTransferLeavesNoBlock) {
  ExpectGreen(State::kReceiving, Fault::kClientCancel);
  ExpectGreen(State::kReceiving, Fault::kClientCrash);
  ExpectGreen(State::kShipped, Fault::kClientCancel);
}

TEST(PublicFailureTest, N02APrefillWorkerThatNeverReportsHoldsNoDecodeBlocks) {
  ExpectGreen(State::kRequested, Fault::kPrefillStop);
  ExpectGreen(State::kQueued, Fault::kPrefillStop);
}

// One chunk is never sent, and the stream ends as if nothing were amiss.
TEST(PublicFailureTest, N03AMissingChunkIsNoticedWhenTheStreamEnds) {
  Rig rig;
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (rig.chunks_taken() < 7) rig.Turn();
  rig.handoff()->SetDamage([](std::deque<fleet::v1::PrefillEvent>& waiting) {
    if (!waiting.front().has_chunk()) return false;
    waiting.pop_front();
    return true;
  });
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(Judge(request.seen, Alone(1), false), "");
  EXPECT_EQ(request.seen.finished->relay().failovers(), 1u);
  EXPECT_EQ(rig.Leftovers(), "");
}

// Blocks are reserved before the prefill worker hears of the request.
TEST(PublicFailureTest, N04ARefusedRequestStrandsNothingOnThePrefillWorker) {
  Rig rig;
  for (DecodeNode& node : rig.decode) {
    node.hog = node.engine->pool().Allocate(node.engine->pool().available()).value();
  }
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  for (int turn = 0; turn < 500; ++turn) {
    rig.Turn();
    ASSERT_FALSE(rig.request_reached_prefill());
  }
  for (DecodeNode& node : rig.decode) node.engine->pool().Release(std::exchange(node.hog, {}));
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(Judge(request.seen, Alone(1), false), "") << "it waited in the router for blocks";
  EXPECT_EQ(rig.Leftovers(), "");
}

TEST(PublicFailureTest, N05AFailedReceiveIsNeverAnAnswer) {
  ExpectGreen(State::kReceiving, Fault::kCorrupt);
  ExpectGreen(State::kReceiving, Fault::kTruncate);
  ExpectGreen(State::kReleased, Fault::kDuplicate);
}

TEST(PublicFailureTest, N06ARestartedPrefillWorkerIsUsedAgainByTheNextRequest) {
  Rig rig;
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (rig.chunks_taken() < 7) rig.Turn();
  rig.Restart(rig.prefill[0]);
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(Judge(request.seen, Alone(1), false), "");
  Request& next = rig.Ask(Alone(2).prompt, kSampling, kAnswer);
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(Judge(next.seen, Alone(2), false), "");
  EXPECT_EQ(next.seen.finished->relay().prefill_worker(), "prefill-0");
  EXPECT_EQ(next.seen.finished->relay().failovers(), 0u);
}

// While one hand-off's peer is dead and nobody knows yet, others go on.
TEST(PublicFailureTest, N08ADeadPeerHoldsUpNobodyElse) {
  Rig rig;
  Request& running = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (running.seen.tokens.size() < 2) rig.Turn();
  Request& stuck = rig.Ask(Alone(2).prompt, kSampling, kAnswer);
  while (rig.chunks_taken() < kChunks + 5) rig.Turn();
  rig.Stop(rig.prefill[0]);
  const absl::Time stopped = rig.now();
  while (!running.seen.status.has_value() && rig.now() - stopped < absl::Seconds(10)) rig.Turn();
  EXPECT_LT(rig.now() - stopped, absl::Milliseconds(500));
  EXPECT_EQ(Judge(running.seen, Alone(1), false), "");
  EXPECT_FALSE(stuck.seen.status.has_value()) << "the hand-off was over before its peer hung";
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(Judge(stuck.seen, Alone(2), false), "");
}

TEST(PublicFailureTest, N09AFailedDecodeLegEndsThePrefillLeg) {
  ExpectGreen(State::kComputing, Fault::kDecodeKill);
  ExpectGreen(State::kQueued, Fault::kDecodeKill);
  ExpectGreen(State::kComputing, Fault::kDecodeStop);
}

// More requests than either pool holds, all at once: everybody takes decode blocks first, then a place at the
// prefill worker, so nobody waits in a circle.
TEST(PublicFailureTest, N10TwoSidesNeverWaitForEachOther) {
  Rig rig;
  std::vector<Request*> requests;
  for (uint32_t i = 0; i < 40; ++i) requests.push_back(&rig.Ask(Alone(1 + i % 4).prompt, kSampling, kAnswer));
  rig.Settle(absl::Seconds(60));
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(Judge(requests[i]->seen, Alone(1 + i % 4), false), "") << i;
  EXPECT_EQ(rig.Leftovers(), "");
}

// A peer that lives and is busy is not a dead one: however long the queue, there is no failover.
TEST(PublicFailureTest, N11WaitingInAQueueIsNotDeath) {
  Rig rig;
  rig.HogPrefill(absl::Seconds(30));
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  rig.Settle(absl::Seconds(40));
  EXPECT_EQ(Judge(request.seen, Alone(1), false), "");
  EXPECT_GT(request.seen.ended, absl::UnixEpoch() + absl::Hours(1) + absl::Seconds(30));
  EXPECT_EQ(request.seen.finished->relay().failovers(), 0u);
}

TEST(PublicFailureTest, N12CleanUpNeedsNoNewWork) {
  ExpectGreen(State::kRunning, Fault::kFullPool);
  ExpectGreen(State::kQueued, Fault::kFullPool);
  // Nothing else comes: the blocks go all the same.
  Rig rig;
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (rig.chunks_taken() < 7) rig.Turn();
  rig.Cancel(request);
  rig.Settle(absl::Seconds(1));
  EXPECT_EQ(rig.Leftovers(), "");
}

// See also FaultMatrixTest.BlocksStayUntilTheLastWriteIsOver.
TEST(PublicFailureTest, N13NothingInFlightLosesItsMemory) {
  for (Fault fault : {Fault::kClientCancel, Fault::kDeadline, Fault::kFullPool, Fault::kLinkDrop}) {
    const Cell cell = TryCell(State::kReceiving, fault, {.write_takes = absl::Milliseconds(20)});
    EXPECT_EQ(cell.wrong, "") << kFaults[static_cast<int>(fault)];
  }
}

TEST(PublicFailureTest, N14APeerThatAbortsLeavesNoOtherHanging) {
  ExpectGreen(State::kReceiving, Fault::kPrefillKill);
  ExpectGreen(State::kShipped, Fault::kDecodeKill);
  ExpectGreen(State::kReceiving, Fault::kLinkDrop);
}

// An answer tells the path that was taken.
TEST(PublicFailureTest, N18ThePathTakenIsTold) {
  Rig rig;
  Request& shipped = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(shipped.seen.finished->relay().link(), "host");
  for (PrefillNode& node : rig.prefill) rig.Kill(node);
  Request& alone = rig.Ask(Alone(2).prompt, kSampling, kAnswer);
  rig.Settle(absl::Seconds(5));
  EXPECT_EQ(Judge(alone.seen, Alone(2), false), "");
  EXPECT_EQ(alone.seen.finished->relay().link(), "local");
  EXPECT_EQ(alone.seen.finished->relay().failovers(), 2u);
}

// Not among the nineteen: a client that stops reading is paused, holds nobody up, and is ended after a while.
TEST(SlowClientTest, IsPausedThenEndedAndHoldsNobody) {
  Rig rig;
  Request& slow = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (slow.seen.tokens.size() < 2) rig.Turn();
  slow.vanished = true;  // it takes nothing more, and its connection lives
  Request& other = rig.Ask(Alone(2).prompt, kSampling, kAnswer);
  const absl::Time begin = rig.now();
  while (rig.now() - begin < absl::Seconds(55)) rig.Turn();
  EXPECT_EQ(Judge(other.seen, Alone(2), false), "");
  EXPECT_FALSE(rig.Leftovers().empty()) << "it was not paused but ended";
  while (rig.now() - begin < absl::Seconds(62)) rig.Turn();
  EXPECT_EQ(rig.Leftovers(), "");
  const size_t taken = slow.seen.tokens.size();
  EXPECT_LT(taken, kAnswer);
}

// Routers weigh pairs by the time of a hand-off that neither the queue nor the prefill explains.
TEST(PeerRateTest, ADecodeWorkerTellsWhatHandOffsFromEachPeerTook) {
  const auto seconds = [](absl::Duration write_takes) {
    Rig rig({.write_takes = write_takes});
    rig.Ask(Alone(1).prompt, kSampling, kAnswer);
    rig.Settle(absl::Seconds(5));
    for (DecodeNode& node : rig.decode) {
      const auto news = node.scheduler->TakeRateNews();
      if (!news.has_value()) continue;
      EXPECT_EQ(news->size(), 1u);
      EXPECT_EQ(news->front().peer, "prefill-0");
      EXPECT_FALSE(node.scheduler->TakeRateNews().has_value());
      int64_t bytes = 0;
      for (const fleet::v1::KvChunk& chunk : rig.chunks()) bytes += static_cast<int64_t>(chunk.data().size());
      EXPECT_GT(bytes, 0);
      return news->front().base + static_cast<double>(bytes) / news->front().bytes_per_second;
    }
    ADD_FAILURE() << "no decode worker tells a rate";
    return 0.0;
  };
  const double slow = seconds(absl::Milliseconds(400));
  EXPECT_GT(slow, 0.39);
  EXPECT_LT(seconds(absl::ZeroDuration()), slow / 4);
}

}  // namespace
}  // namespace baton::fault
