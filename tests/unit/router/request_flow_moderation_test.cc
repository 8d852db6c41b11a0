// A request whose answer is moderated, event by event: what is held, what verdicts do, and every way to end.
#include <string>

#include "router/billing/usage_record.h"
#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

using moderation::Policy;
using moderation::Verdict;

class NoModerator final : public moderation::Moderator {
 public:
  const std::string& name() const override { return name_; }
  size_t room() const override { return 4096; }
  std::shared_ptr<moderation::Judgement> Judge(moderation::Passage, const Tenant&, absl::Time,
                                               const telemetry::TraceContext&, Callback) override {
    return nullptr;
  }

 private:
  const std::string name_ = "guard";
};

const Verdict kHarmless = {.tokens = 5};
const Verdict kHarmful = {.flagged = true, .categories = {{"threat", 0.9}}, .tokens = 7};

class RequestFlowModerationTest : public RequestFlowTest {
 protected:
  Prepared Moderated(Policy policy, int choices = 1) {
    Prepared prepared = Request(choices);
    prepared.request.mutable_stop()->set_max_tokens(1000);
    prepared.moderation = ModerationPlan{.moderator = &moderator_, .policy = policy, .question = "why?"};
    return prepared;
  }
  void RunModerated(Prepared prepared) {
    Make();
    const int choices = prepared.choices;
    EXPECT_EQ(Names(flow_->OnPrepared(std::move(prepared))), "submit");
    for (int i = 0; i < choices; ++i) {
      EXPECT_EQ(Names(flow_->OnPlaced(i, Place(0))), "dial:" + std::to_string(i) + ".1");
      flow_->OnDecodeEvent(i, 1, Accepted());
    }
    EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  }
  // So many tokens, none of which fills a window; each is asked for.
  void Hold(int tokens, const std::string& text = "x", int choice = 0, int attempt = 1) {
    for (int i = 0; i < tokens; ++i) {
      ASSERT_EQ(Names(flow_->OnDecodeEvent(choice, attempt, Token(text))), "read:" + std::to_string(choice))
          << "token " << i;
    }
  }

  NoModerator moderator_;
};

TEST_F(RequestFlowModerationTest, TextIsHeldUntilAVerdictCoversItAndTheNextWindowFillsMeanwhile) {
  RunModerated(Moderated(Policy::kBlock));
  Hold(15);
  const Actions window = flow_->OnDecodeEvent(0, 1, Token("x"));
  ASSERT_EQ(Names(window), "judge:0 read:0");
  EXPECT_EQ(Only<Judge>(window).passage.text, std::string(16, 'x'));
  EXPECT_EQ(Only<Judge>(window).passage.question, "why?");
  Hold(63, "y");
  // The second window is full too: a slow classifier stops the reading.
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("y"))), "");
  const Actions passed = flow_->OnVerdict(0, kHarmless);
  EXPECT_EQ(Names(passed), "write:x judge:0") << "the client has 16 to take before more is read";
  for (int i = 0; i < 13; ++i) EXPECT_EQ(Names(flow_->OnWritten(true)), "write:x");
  // Two of them are left.
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:x");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "read:0 write:x");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Done())), "read:0");
  EXPECT_EQ(Names(flow_->OnVerdict(0, kHarmless)), "write:y");
  for (int i = 0; i < 62; ++i) EXPECT_EQ(Names(flow_->OnWritten(true)), "write:y") << i;
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:y");
  const Actions last = flow_->OnWritten(true);
  ASSERT_EQ(Names(last), "last:finished0");
  const v1::Finished& finished = Only<WriteLast>(last).response.finished();
  EXPECT_EQ(finished.usage().moderation_tokens(), 10u);
  EXPECT_EQ(finished.usage().completion_tokens(), 80u);
  EXPECT_EQ(finished.moderation().verdicts(), 2u);
  EXPECT_FALSE(finished.moderation().flagged());
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowModerationTest, ABadVerdictEndsTheChoiceAndSendsNothingOfIt) {
  RunModerated(Moderated(Policy::kBlock));
  Hold(15, "bad");
  flow_->OnDecodeEvent(0, 1, Token("bad"));
  Hold(10, "worse");
  const Actions blocked = flow_->OnVerdict(0, kHarmful);
  ASSERT_EQ(Names(blocked), "hangup:0 last:finished0");
  const v1::Finished& finished = Only<WriteLast>(blocked).response.finished();
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_CONTENT_FILTER);
  EXPECT_TRUE(finished.moderation().flagged());
  EXPECT_EQ(finished.moderation().categories(0).name(), "threat");
  EXPECT_EQ(finished.usage().completion_tokens(), 26u) << "what was generated counts";
  EXPECT_EQ(finished.usage().moderation_tokens(), 7u);
  EXPECT_EQ(Only<WriteLast>(blocked).used.output_tokens, 26);
  EXPECT_EQ(Bookings(), 0);
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::CancelledError(""))), "");
}

TEST_F(RequestFlowModerationTest, TheEndWaitsForTheLastVerdictAndTellsNothingOfABlockedOne) {
  RunModerated(Moderated(Policy::kBlock));
  Hold(3, "bad");
  baton::fleet::v1::DecodeEvent done = Done();
  done.mutable_finished()->set_reason(v1::FINISH_REASON_STOP_STRING);
  done.mutable_finished()->set_stop_match("stop");
  const Actions end = flow_->OnDecodeEvent(0, 1, done);
  EXPECT_EQ(Names(end), "read:0 judge:0");
  EXPECT_EQ(Bookings(), 0) << "the worker is free";
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::OkStatus())), "");
  const Actions blocked = flow_->OnVerdict(0, kHarmful);
  ASSERT_EQ(Names(blocked), "last:finished0");
  EXPECT_EQ(Only<WriteLast>(blocked).response.finished().reason(), v1::FINISH_REASON_CONTENT_FILTER);
  EXPECT_EQ(Only<WriteLast>(blocked).response.finished().stop_match(), "");
}

TEST_F(RequestFlowModerationTest, EveryChoiceHasItsOwnVerdict) {
  RunModerated(Moderated(Policy::kBlock, 3));
  for (int choice = 0; choice < 3; ++choice) {
    Hold(2, "t" + std::to_string(choice), choice);
    EXPECT_EQ(Names(flow_->OnDecodeEvent(choice, 1, Done())),
              "read:" + std::to_string(choice) + " judge:" + std::to_string(choice));
  }
  EXPECT_EQ(Names(flow_->OnVerdict(2, kHarmful)), "write:finished2");
  EXPECT_EQ(Names(flow_->OnVerdict(0, kHarmless)), "");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:t0");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:t0");
  EXPECT_EQ(Names(flow_->OnVerdict(1, kHarmful)), "");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:finished0");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "last:finished1");
  EXPECT_TRUE(flow_->outcome().moderation->flagged());
}

TEST_F(RequestFlowModerationTest, WithoutAVerdictNothingIsSent) {
  RunModerated(Moderated(Policy::kBlock));
  Hold(15);
  flow_->OnDecodeEvent(0, 1, Token("x"));
  const Actions failed = flow_->OnVerdict(0, absl::UnavailableError("no worker"));
  EXPECT_EQ(Names(failed), "withdraw hangup:0 finish:UNAVAILABLE");
  EXPECT_NE(std::string(Only<Finish>(failed).status.message()).find("guard"), std::string::npos);
}

TEST_F(RequestFlowModerationTest, TheOperatorMayLetItPassThen) {
  Prepared prepared = Moderated(Policy::kBlock);
  prepared.moderation->fail_open = true;
  RunModerated(std::move(prepared));
  Hold(2);
  flow_->OnDecodeEvent(0, 1, Done());
  EXPECT_EQ(Names(flow_->OnVerdict(0, absl::UnavailableError("no worker"))), "write:x");
  flow_->OnWritten(true);
  const Actions last = flow_->OnWritten(true);
  ASSERT_EQ(Names(last), "last:finished0");
  EXPECT_TRUE(Only<WriteLast>(last).response.finished().moderation().unavailable());
  EXPECT_EQ(Only<WriteLast>(last).response.finished().reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(RequestFlowModerationTest, ScoringHoldsNoText) {
  RunModerated(Moderated(Policy::kScore));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("bad"))), "write:bad read:0");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Done())), "read:0 judge:0");
  const Actions last = flow_->OnVerdict(0, kHarmful);
  ASSERT_EQ(Names(last), "last:finished0");
  EXPECT_EQ(Only<WriteLast>(last).response.finished().reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(Only<WriteLast>(last).response.finished().moderation().flagged());
}

TEST_F(RequestFlowModerationTest, APromptIsJudgedBeforeAnythingIsComputed) {
  Prepared prepared = Moderated(Policy::kBlock, 2);
  prepared.moderation->input = "evil";
  Make();
  const Actions judge = flow_->OnPrepared(std::move(prepared));
  ASSERT_EQ(Names(judge), "judge:-1");
  EXPECT_FALSE(Only<Judge>(judge).passage.answer);
  const Actions blocked = flow_->OnVerdict(Judge::kPrompt, kHarmful);
  EXPECT_EQ(Names(blocked), "write:started");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:finished0");
  const Actions last = flow_->OnWritten(true);
  ASSERT_EQ(Names(last), "last:finished1");
  const v1::Finished& finished = Only<WriteLast>(last).response.finished();
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_CONTENT_FILTER);
  EXPECT_TRUE(finished.moderation().input());
  EXPECT_EQ(finished.usage().completion_tokens(), 0u);
}

TEST_F(RequestFlowModerationTest, AHarmlessPromptGoesOn) {
  Prepared prepared = Moderated(Policy::kBlock);
  prepared.moderation->input = "fine";
  Make();
  EXPECT_EQ(Names(flow_->OnPrepared(std::move(prepared))), "judge:-1");
  EXPECT_EQ(Names(flow_->OnVerdict(Judge::kPrompt, kHarmless)), "submit");
  EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw finish:CANCELLED");
}

TEST_F(RequestFlowModerationTest, CancellingStopsTheVerdict) {
  RunModerated(Moderated(Policy::kBlock));
  Hold(15);
  flow_->OnDecodeEvent(0, 1, Token("x"));
  EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw stop hangup:0 finish:CANCELLED");
  EXPECT_EQ(Names(flow_->OnVerdict(0, absl::CancelledError(""))), "");
}

// Another worker goes on behind the tokens that came here, not behind those that the client has.
TEST_F(RequestFlowModerationTest, AMigrationInMidWindowGoesOnBehindWhatIsHeld) {
  RunModerated(Moderated(Policy::kBlock));
  Hold(10, "x");
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::UnavailableError("died"))), "requeue:0");
  const Actions dial = flow_->OnPlaced(0, Place(1));
  ASSERT_EQ(Names(dial), "dial:0.2");
  EXPECT_EQ(Only<Dial>(dial).request.resumed_tokens(), 10u);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Accepted())), "read:0");
  Hold(5, "x", 0, 2);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Token("x"))), "judge:0 read:0");
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 2, absl::UnavailableError("died"))), "requeue:0");
  const Actions blocked = flow_->OnVerdict(0, kHarmful);
  EXPECT_EQ(Names(blocked), "withdraw:0 last:finished0") << "blocked while it waited for a worker";
  EXPECT_EQ(Names(flow_->OnPlaced(0, Place(0))), "");
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowModerationTest, AWarmingRequestHasNoAnswerToJudge) {
  Prepared prepared = Moderated(Policy::kBlock);
  prepared.request.mutable_stop()->set_max_tokens(0);
  RunModerated(std::move(prepared));
  const Actions last = flow_->OnDecodeEvent(0, 1, Done());
  EXPECT_EQ(Names(last), "read:0 last:finished0");
  EXPECT_FALSE(Only<WriteLast>(last).response.finished().has_moderation());
}

}  // namespace
}  // namespace baton::router
