#include "prefill_service/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/check.h"
#include "transfer/host_link.h"

namespace baton::prefill_service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr forecast::QueueTargets kTargets = forecast::QueueTargets::For(forecast::kDefaultSloTtft);
constexpr char kModel[] = BATON_SOURCE_DIR "/tests/golden/models/data/llama-gqa-tied";

// A peer, and what it has got so far.
struct Peer {
  std::vector<fleet::v1::PrefillEvent> events;
  std::optional<absl::Status> finished;
  bool congested = false;

  int64_t computed_tokens() const {
    int64_t tokens = 0;
    for (const auto& event : events) {
      if (event.progress().state() == fleet::v1::PrefillProgress::STATE_COMPUTING)
        tokens = event.progress().tokens_done();
    }
    return tokens;
  }
  bool has_logits() const {
    return std::any_of(events.begin(), events.end(), [](const auto& event) { return event.has_done(); });
  }
};

// A link whose payloads are ready when the test says so, and whose memory is what the test gives it.
class SlowLink final : public transfer::LinkSender {
 public:
  std::string_view name() const override { return "slow"; }
  absl::Status Ship(transfer::ConstPieces pieces, fleet::v1::KvChunk& chunk) override {
    int64_t bytes = 0;
    for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
    reserved_[chunk.ticket_id()] -= bytes;
    if (reserved_[chunk.ticket_id()] < 0) return absl::UnavailableError("nothing was set aside for it");
    return host_.Ship(pieces, chunk);
  }
  void WhenReady(absl::AnyInvocable<void()> then) override { unready_.push_back(std::move(then)); }
  int64_t Reserve(const protocol::Ticket& ticket, int64_t least, int64_t most) override {
    const int64_t bytes = std::min(most, room.contains(ticket.id.value()) ? room[ticket.id.value()] : most);
    return reserved_[ticket.id.value()] = bytes < least ? 0 : bytes;
  }
  void Unreserve(const protocol::Ticket& ticket) override { reserved_.erase(ticket.id.value()); }

  void Release() {
    for (auto& then : std::exchange(unready_, {})) then();
  }
  size_t reservations() const { return reserved_.size(); }
  std::map<uint64_t, int64_t> room;  // by ticket; any, without an entry

 private:
  transfer::HostLinkSender host_;
  std::vector<absl::AnyInvocable<void()>> unready_;
  std::map<uint64_t, int64_t> reserved_;
};

class SchedulerTest : public ::testing::Test {
 protected:
  void Make(int64_t blocks, SchedulerOptions options) {
    engine_ =
        engine::Engine::Load({.model_folder = kModel, .backend = "reference", .kv_blocks = blocks}).value();
    scheduler_ = std::make_unique<Scheduler>(options, *engine_, *sender_, clock_, probe_);
  }

  absl::Status Submit(JobId id, int64_t tokens, int priority = 0, int first_token = 1) {
    Job job;
    for (int64_t i = 0; i < tokens; ++i)
      job.tokens.emplace_back(static_cast<int32_t>(first_token + id + i) % 200);
    job.root = engine_->RootFor(kv::TenantSalt("salt"));
    job.ticket = {Incarnation(1), TicketId(id), 0, std::vector<Generation>(BlocksFor(tokens), Generation(1))};
    job.priority = priority;
    Peer& peer = peers_[id];
    job.send = [&peer](fleet::v1::PrefillEvent event) { peer.events.push_back(std::move(event)); };
    job.finish = [this, &peer, id](absl::Status status) {
      peer.finished = std::move(status);
      order_.push_back(id);
    };
    job.congested = [&peer] { return peer.congested; };
    return scheduler_->Submit(id, std::move(job));
  }

  void RunUntilIdle() {
    while (scheduler_->Step()) {
    }
  }

  FakeClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{metrics_, "host"};
  transfer::HostLinkSender link_;
  SlowLink slow_;
  transfer::LinkSender* sender_ = &link_;
  std::unique_ptr<engine::Engine> engine_;
  std::map<JobId, Peer> peers_;
  std::vector<JobId> order_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, SeveralPromptsShareAStepUnderTheBudget) {
  Make(64, {.chunk_tokens = 16, .token_budget = 32});
  ASSERT_TRUE(Submit(1, 64).ok());
  ASSERT_TRUE(Submit(2, 64).ok());
  ASSERT_TRUE(Submit(3, 64).ok());
  scheduler_->Step();
  EXPECT_EQ(peers_[1].computed_tokens(), 16);
  EXPECT_EQ(peers_[2].computed_tokens(), 16);
  EXPECT_EQ(peers_[3].computed_tokens(), 0) << "beyond the budget";
  EXPECT_EQ(scheduler_->pending_tokens(), 3 * 64 - 32);
  RunUntilIdle();
  for (JobId id : {1, 2, 3}) {
    EXPECT_TRUE(peers_[id].has_logits());
    EXPECT_TRUE(peers_[id].finished->ok());
  }
  EXPECT_EQ(engine_->pool().counts().held, 0);
}

TEST_F(SchedulerTest, ChunksEndWithBlocksAndEveryBlockIsShippedOncePerLayer) {
  Make(64, {.chunk_tokens = 39, .token_budget = 47});  // whole blocks: 32
  ASSERT_TRUE(Submit(1, 75).ok());
  RunUntilIdle();
  std::map<std::pair<int, int>, int> shipped;  // (block, layer)
  for (const auto& event : peers_[1].events) {
    if (!event.has_chunk()) continue;
    for (int i = 0; i < event.chunk().generations_size(); ++i) {
      for (uint32_t layer = 0; layer < event.chunk().layers(); ++layer) {
        ++shipped[{event.chunk().first_block() + i, event.chunk().first_layer() + layer}];
      }
    }
  }
  EXPECT_EQ(static_cast<int>(shipped.size()), 5 * engine_->config().layers);
  for (const auto& [what, times] : shipped) EXPECT_EQ(times, 1) << what.first << " " << what.second;
}

TEST_F(SchedulerTest, PriorityGoesFirstAndAgeMakesUpForIt) {
  // Room for one prompt at a time.
  Make(4, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 64, 0).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 64, 5).ok());
  clock_.Advance(absl::Seconds(3));
  ASSERT_TRUE(Submit(3, 64, 0).ok());
  ASSERT_TRUE(Submit(4, 64, 1).ok());
  clock_.Advance(absl::Milliseconds(1));
  ASSERT_TRUE(Submit(5, 64, 3).ok());
  RunUntilIdle();
  // 2 has waited three seconds: its 5 counts as 2 where 5's is 3.
  EXPECT_THAT(order_, ElementsAre(1, 3, 4, 2, 5));
}

TEST_F(SchedulerTest, AShortPromptOvertakesALongOneUntilThatIsDue) {
  Make(8, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 100).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 120).ok());
  ASSERT_TRUE(Submit(3, 10).ok());
  clock_.Advance(absl::Seconds(kTargets.target / 2));
  ASSERT_TRUE(Submit(4, 10).ok());
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(3, 1, 2, 4));
}

TEST_F(SchedulerTest, APromptThatIsTooLateMakesWayForOneThatIsNot) {
  Make(8, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 100).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 100).ok());
  clock_.Advance(absl::Seconds(kTargets.target));
  ASSERT_TRUE(Submit(3, 120).ok());
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(1, 3, 2));
}

TEST_F(SchedulerTest, WhatIsTooLateFollowsTheSlo) {
  Make(8, {.chunk_tokens = 16, .token_budget = 16, .targets = {.ttft = 20}});
  ASSERT_TRUE(Submit(1, 100).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 100).ok());
  clock_.Advance(absl::Seconds(kTargets.target));
  ASSERT_TRUE(Submit(3, 120).ok());
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(1, 2, 3)) << "2 is not late, by twenty seconds";
}

TEST_F(SchedulerTest, WithTheWholeTailShareTheOrderIsThatOfArrival) {
  Make(64, {.chunk_tokens = 16, .token_budget = 16, .targets = {.tail_share = 1}});
  ASSERT_TRUE(Submit(1, 160).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 160).ok());
  clock_.Advance(absl::Milliseconds(1));
  ASSERT_TRUE(Submit(3, 16).ok());
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(1, 2, 3)) << "the short one would pass both";
}

TEST_F(SchedulerTest, TargetsThatARouterTellsOrderWhatWaitsAlready) {
  Make(64, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 160).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 160).ok());
  clock_.Advance(absl::Milliseconds(1));
  ASSERT_TRUE(Submit(3, 16).ok());
  scheduler_->SetTargets({.tail_share = 1});
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(1, 2, 3)) << "the order of arrival, in which the short one passes nobody";
}

TEST_F(SchedulerTest, APromptThatIsTooLateIsNotPassedForEver) {
  Make(8, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 100).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 100).ok());
  clock_.Advance(absl::Seconds(kTargets.late));
  ASSERT_TRUE(Submit(3, 16).ok());
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(1, 2, 3));
}

TEST_F(SchedulerTest, AShortPromptGoesBetweenTheChunksOfALongOne) {
  Make(64, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 160).ok());
  scheduler_->Step();
  ASSERT_TRUE(Submit(2, 16).ok());
  RunUntilIdle();
  EXPECT_THAT(order_, ElementsAre(2, 1));
}

TEST_F(SchedulerTest, WhoWaitsHearsItsPosition) {
  Make(4, {.chunk_tokens = 16, .token_budget = 16});
  for (JobId id : {1, 2, 3}) ASSERT_TRUE(Submit(id, 64).ok());
  scheduler_->Step();
  EXPECT_EQ(peers_[3].events.back().progress().state(), fleet::v1::PrefillProgress::STATE_QUEUED);
  EXPECT_EQ(peers_[3].events.back().progress().queue_position(), 1u);
}

TEST_F(SchedulerTest, RefusesWhatCanNeverFitAndWhatIsTooMuch) {
  Make(4, {.max_queued = 2});
  const absl::Status large = Submit(1, 65);
  EXPECT_EQ(large.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(large.message()), HasSubstr("5 KV blocks"));
  ASSERT_TRUE(Submit(2, 10).ok());
  ASSERT_TRUE(Submit(3, 10).ok());
  EXPECT_EQ(Submit(4, 10).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SchedulerTest, CancelBetweenChunksFreesTheBlocksAndTellsNobody) {
  Make(16, {.chunk_tokens = 16, .token_budget = 16});
  ASSERT_TRUE(Submit(1, 100).ok());
  ASSERT_TRUE(Submit(2, 30).ok());
  scheduler_->Step();
  EXPECT_GT(engine_->pool().counts().held, 0);
  scheduler_->Cancel(1);
  scheduler_->Cancel(77);
  RunUntilIdle();
  EXPECT_FALSE(peers_[1].finished.has_value());
  EXPECT_TRUE(peers_[2].finished->ok());
  EXPECT_EQ(engine_->pool().counts().held, 0);
}

TEST_F(SchedulerTest, APeerThatDoesNotReadPausesItsOwnPromptAlone) {
  Make(32, {.chunk_tokens = 16, .token_budget = 64});
  ASSERT_TRUE(Submit(1, 64).ok());
  ASSERT_TRUE(Submit(2, 64).ok());
  scheduler_->Step();
  peers_[1].congested = true;
  RunUntilIdle();
  EXPECT_FALSE(peers_[1].finished.has_value());
  EXPECT_TRUE(peers_[2].finished.has_value());
  peers_[1].congested = false;
  RunUntilIdle();
  EXPECT_TRUE(peers_[1].finished->ok());
}

TEST_F(SchedulerTest, MessagesWaitForTheirPayloadsAndTheEndComesLast) {
  sender_ = &slow_;
  Make(32, {.chunk_tokens = 64, .token_budget = 64});
  ASSERT_TRUE(Submit(1, 64).ok());
  RunUntilIdle();
  const auto chunks = [this] {
    return std::ranges::count_if(peers_[1].events, [](const auto& event) { return event.has_chunk(); });
  };
  EXPECT_TRUE(peers_[1].has_logits()) << "they wait for nothing";
  EXPECT_EQ(chunks(), 0);
  EXPECT_FALSE(peers_[1].finished.has_value());
  EXPECT_EQ(engine_->pool().counts().held, 0) << "the link has its own copy";
  slow_.Release();
  EXPECT_EQ(chunks(), engine_->config().layers);
  EXPECT_TRUE(peers_[1].finished->ok());
}

TEST_F(SchedulerTest, AStepIsCutToTheRoomThatTheLinkHas) {
  sender_ = &slow_;
  Make(32, {.chunk_tokens = 64, .token_budget = 128});
  slow_.room[1] = 2 * engine_->store().layout().block_bytes() + 1;
  ASSERT_TRUE(Submit(1, 100).ok());
  ASSERT_TRUE(Submit(2, 64).ok());
  scheduler_->Step();
  EXPECT_EQ(peers_[1].computed_tokens(), 32);
  EXPECT_TRUE(peers_[2].has_logits());
  RunUntilIdle();
  slow_.Release();
  EXPECT_TRUE(peers_[1].finished->ok()) << *peers_[1].finished;
  EXPECT_EQ(slow_.reservations(), 0u);
}

TEST_F(SchedulerTest, WithoutRoomForItAPromptWaitsAndOthersGoOn) {
  sender_ = &slow_;
  Make(32, {.chunk_tokens = 64, .token_budget = 64});
  slow_.room[1] = engine_->store().layout().block_bytes() - 1;
  ASSERT_TRUE(Submit(1, 64).ok());
  ASSERT_TRUE(Submit(2, 64).ok());
  RunUntilIdle();
  slow_.Release();
  EXPECT_FALSE(peers_[1].finished.has_value());
  EXPECT_EQ(peers_[1].computed_tokens(), 0);
  EXPECT_TRUE(peers_[2].finished->ok());
  EXPECT_FALSE(scheduler_->Step()) << "until the link wakes the loop";
  slow_.room.clear();
  RunUntilIdle();
  // And what is cached: the same tokens once more.
  slow_.room[3] = 0;
  ASSERT_TRUE(Submit(3, 64, 0, -1).ok());
  RunUntilIdle();
  EXPECT_FALSE(peers_[3].finished.has_value());
  slow_.room.clear();
  RunUntilIdle();
  slow_.Release();
  EXPECT_TRUE(peers_[1].finished->ok() && peers_[3].finished->ok());
  EXPECT_EQ(slow_.reservations(), 0u);
}

TEST_F(SchedulerTest, ACachedPrefixIsShippedAndNotComputedAgain) {
  Make(32, {.chunk_tokens = 64, .token_budget = 64});
  ASSERT_TRUE(Submit(1, 64).ok());
  RunUntilIdle();
  // The same tokens: job 2 starts one id later.
  ASSERT_TRUE(Submit(2, 64, 0, 0).ok());
  RunUntilIdle();
  const fleet::v1::PrefillDone* done = nullptr;
  for (const auto& event : peers_[2].events) {
    if (event.has_done()) done = &event.done();
  }
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->cached_tokens(), 48u);
  EXPECT_EQ(done->computed_tokens(), 16u);
  EXPECT_EQ(done->logits(), [&] {
    for (const auto& event : peers_[1].events) {
      if (event.has_done()) return event.done().logits();
    }
    return std::string();
  }()) << "a cache hit changed a bit";
}

}  // namespace
}  // namespace baton::prefill_service
