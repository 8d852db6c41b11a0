// A row whose mask is not there waits, and the batch does not: masks are computed when the test says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/telemetry/metrics.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "tests/fuzz/tiny_engine.h"
#include "transfer/host_link.h"

namespace baton::decode_service {
namespace {

constexpr int kVocabulary = 2048;

class NoPrefill final : public PrefillClient {
 public:
  std::unique_ptr<PrefillCall> Call(const std::string&, fleet::v1::PrefillRequest, absl::Time,
                                    const telemetry::TraceContext&, Callbacks) override {
    ADD_FAILURE() << "no prefill worker was named";
    return nullptr;
  }
};

struct Streamed {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> digests;
  std::vector<std::string> logprobs;  // serialized
  uint32_t preemptions = 0;
  std::optional<absl::Status> end;
  bool over() const { return end.has_value(); }
};

class Rig {
 public:
  explicit Rig(const std::string& backend, int64_t blocks = 64)
      : engine_(fuzz::MakeTinyEngine(blocks, kVocabulary, backend)) {
    SchedulerOptions options;
    options.worker_id = "d";
    options.step = {.chunk_tokens = 32, .token_budget = 64};
    scheduler_ = std::make_unique<Scheduler>(options, *engine_, link_, prefill_, clock_, probe_);
  }

  static const std::shared_ptr<const text::Tokenizer>& Tokenizer() {
    static const std::shared_ptr<const text::Tokenizer> tokenizer =
        text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
    return tokenizer;
  }

  // The answer, which goes on with the steps.
  const Streamed& Submit(int number, bool constrained, const std::vector<int32_t>& resumed = {},
                         bool shows_logits = true, const std::string& salt = "") {
    fleet::v1::DecodeRequest request;
    request.set_salt(salt);
    *request.mutable_fingerprint() = protocol::ToProto(engine_->fingerprint());
    for (int i = 0; i < 20; ++i) request.add_token_ids(300 + (i * 7 + number) % 50);
    for (const int32_t token : resumed) request.add_token_ids(token);
    request.set_resumed_tokens(static_cast<uint32_t>(resumed.size()));
    request.mutable_stop()->set_max_tokens(40);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(static_cast<uint64_t>(number));
    request.mutable_output()->set_token_ids(true);
    if (constrained) {
      request.mutable_grammar()->set_lark("start: /[a-z]{3,12}( [a-z]{1,5}){20,40}/");
      request.mutable_sampling()->set_repetition_penalty(1.25f);
      request.mutable_output()->set_logits_digest(shows_logits);
      request.mutable_output()->set_logprobs(shows_logits);
    } else {
      request.mutable_stop()->set_ignore_eos(true);
    }
    Streamed& answer = answers_[next_id_];
    answer.tokens = resumed;
    auto parsed = ParseRequest(request, *engine_, Tokenizer(), markers_);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    Sequence& sequence = **parsed;
    sequence.send = [&answer](const fleet::v1::DecodeEvent& event) {
      if (event.has_finished()) answer.preemptions = event.finished().relay().preemptions();
      const v1::Delta& delta = event.delta();
      answer.tokens.insert(answer.tokens.end(), delta.token_ids().begin(), delta.token_ids().end());
      answer.digests.insert(answer.digests.end(), delta.logits_digests().begin(),
                            delta.logits_digests().end());
      for (const auto& step : delta.logprobs()) answer.logprobs.push_back(step.SerializeAsString());
    };
    sequence.finish = [&answer](const absl::Status& status) { answer.end = status; };
    sequence.congested = [] { return false; };
    if (AnswerGrammar* const grammar = sequence.outbox->grammar(); grammar != nullptr) {
      grammar->Begin(vocabulary_, vocabulary_->Compile(grammar->lark()).value(), masks_);
    }
    last_ = SequenceId(next_id_);
    EXPECT_TRUE(scheduler_->Submit(SequenceId(next_id_++), *std::move(parsed)).ok());
    return answer;
  }

  void Compute() {
    while (masks_.RunOne()) {
    }
  }
  // Steps until all answers are over, with every mask in time.
  void Finish() {
    for (int i = 0; i < 2000; ++i) {
      Compute();
      if (!scheduler_->Step() && scheduler_->sequences() == 0) break;
    }
    EXPECT_EQ(scheduler_->sequences(), 0u);
    scheduler_->Step();
    EXPECT_EQ(engine_->pool().counts().held, 0);
  }

  Scheduler& scheduler() { return *scheduler_; }
  engine::Engine& engine() { return *engine_; }
  GrammarThreads& masks() { return masks_; }
  int told() const { return told_; }
  // Each mask takes so much of a thread from now on, by the clock that answers are charged by.
  void SetMaskCost(absl::Duration cost) { mask_cost_ = cost; }
  SequenceId last() const { return last_; }

 private:
  std::unique_ptr<engine::Engine> engine_;
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*Tokenizer()).value();
  std::shared_ptr<const output::MarkerTables> markers_ = std::make_shared<output::MarkerTables>(*Tokenizer());
  int told_ = 0;
  absl::Duration mask_cost_, cpu_time_;
  GrammarThreads masks_{{.swift = 0,
                         .slow = 0,
                         .ready = [this] { ++told_; },
                         // It is asked before each piece of work and behind it.
                         .cpu_time =
                             [this, asked = 0]() mutable {
                               if (asked++ % 2 == 1) cpu_time_ += mask_cost_;
                               return cpu_time_;
                             }}};
  transfer::HostLinkReceiver link_;
  NoPrefill prefill_;
  FakeClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{metrics_, "host"};
  std::unique_ptr<Scheduler> scheduler_;
  std::map<uint64_t, Streamed> answers_;
  uint64_t next_id_ = 1;
  SequenceId last_{0};
};

void ExpectSame(const Streamed& answer, const Streamed& alone) {
  ASSERT_TRUE(answer.over() && alone.over());
  EXPECT_EQ(*answer.end, *alone.end);
  EXPECT_EQ(answer.tokens, alone.tokens);
  EXPECT_EQ(answer.digests, alone.digests);
  EXPECT_EQ(answer.logprobs, alone.logprobs);
}

// Steps overlap on the first.
class GrammarWaitTest : public testing::TestWithParam<const char*> {
 protected:
  Streamed Alone(int number, bool constrained) {
    Rig rig(GetParam());
    const Streamed& answer = rig.Submit(number, constrained);
    rig.Finish();
    EXPECT_GT(answer.tokens.size(), 20u);
    return answer;
  }
};

TEST_P(GrammarWaitTest, ABlockedRowWaitsAndTheOthersGoOn) {
  const Streamed constrained = Alone(0, true), plain = Alone(1, false), other = Alone(2, false);
  Rig rig(GetParam());
  const Streamed& waits = rig.Submit(0, true);
  const Streamed& goes_on = rig.Submit(1, false);
  // Some tokens with their masks in time, then none.
  while (waits.tokens.size() < 5) {
    rig.Compute();
    rig.scheduler().Step();
  }
  const Streamed& comes = rig.Submit(2, false);
  while (rig.scheduler().Step()) {
  }
  EXPECT_EQ(waits.tokens.size(), 5u);
  EXPECT_FALSE(waits.over());
  ExpectSame(goes_on, plain);
  ExpectSame(comes, other);
  EXPECT_EQ(rig.scheduler().sequences(), 1u);
  EXPECT_FALSE(rig.scheduler().Step()) << "an engine that waits for a mask has nothing to do";
  EXPECT_EQ(rig.told(), 0);
  ASSERT_TRUE(rig.masks().RunOne());
  EXPECT_EQ(rig.told(), 1) << "or it would sleep on";
  EXPECT_TRUE(rig.scheduler().Step());
  EXPECT_EQ(waits.tokens.size(), 6u);
  rig.Finish();
  ExpectSame(waits, constrained);
}

TEST_P(GrammarWaitTest, AMaskInTimeCostsNoStep) {
  Rig rig(GetParam());
  const Streamed& answer = rig.Submit(0, true);
  rig.Compute();
  rig.scheduler().Step();
  ASSERT_EQ(answer.tokens.size(), 1u);
  for (size_t tokens = 2; tokens < 10; ++tokens) {
    rig.Compute();
    const int64_t steps = rig.scheduler().steps_launched();
    rig.scheduler().Step();
    EXPECT_EQ(answer.tokens.size(), tokens);
    EXPECT_EQ(rig.scheduler().steps_launched(), steps + 1);
  }
  EXPECT_EQ(rig.told(), 0);
}

// The row is computed beside the mask: once that is there, the token is drawn without another step.
TEST_P(GrammarWaitTest, ALateMaskCostsNoSecondForwardPass) {
  Rig rig(GetParam());
  const Streamed& answer = rig.Submit(0, true);
  for (int i = 0; i < 50; ++i) {
    rig.scheduler().Step();
    rig.Compute();
  }
  EXPECT_EQ(static_cast<int64_t>(answer.tokens.size()), rig.scheduler().steps_launched());
  EXPECT_GT(answer.tokens.size(), 20u);
}

// A backend that draws gets the mask along if it is there before the step, and the sampler on the host draws
// the same tokens.
TEST_P(GrammarWaitTest, WhereTheBackendDrawsTheMaskGoesAlong) {
  const Streamed host = Alone(0, true);
  Rig rig(GetParam());
  const bool draws = rig.engine().overlaps();
  const Streamed& answer = rig.Submit(0, true, {}, /*shows_logits=*/false);
  rig.Compute();
  rig.scheduler().Step();
  // Tokens with penalties are counted in a slot as soon as the backend draws one.
  const auto slot = rig.engine().TakePenaltySlot();
  ASSERT_EQ(slot != nullptr, draws);
  if (draws) {
    EXPECT_EQ(slot->index(), 1) << "the first one is not in use: the host has drawn";
  }
  rig.Finish();
  EXPECT_EQ(answer.tokens, host.tokens);
  EXPECT_EQ(*answer.end, *host.end);
}

TEST_P(GrammarWaitTest, WhoeverIsPreemptedWhileItWaitsHasTheSameAnswer) {
  const Streamed plain = Alone(1, false), constrained = Alone(0, true);
  Rig rig(GetParam(), /*blocks=*/6);
  const Streamed& oldest = rig.Submit(1, false);
  const Streamed& waits = rig.Submit(0, true);
  while (waits.tokens.size() < 3) {
    rig.Compute();
    rig.scheduler().Step();
  }
  // The older one grows until there are no blocks for both.
  const auto hog = rig.engine().pool().Allocate(1);
  ASSERT_TRUE(hog.ok());
  for (int i = 0; i < 100 && !oldest.over(); ++i) rig.scheduler().Step();
  EXPECT_EQ(waits.tokens.size(), 3u);
  rig.engine().pool().Release(*hog);
  rig.Finish();
  EXPECT_EQ(waits.preemptions, 1u);
  ExpectSame(oldest, plain);
  ExpectSame(waits, constrained);
}

TEST_P(GrammarWaitTest, WhoeverMovesWhileItWaitsHasTheSameAnswer) {
  const Streamed constrained = Alone(0, true);
  Rig here(GetParam()), there(GetParam());
  const Streamed& begun = here.Submit(0, true);
  while (begun.tokens.size() < 7) {
    here.Compute();
    here.scheduler().Step();
  }
  here.scheduler().Step();
  here.scheduler().Cancel(here.last());
  EXPECT_FALSE(here.scheduler().Step());
  EXPECT_EQ(here.engine().pool().counts().held, 0);
  here.Compute();  // the mask of an answer that is gone
  const Streamed& moved = there.Submit(0, true, begun.tokens);
  there.Finish();
  EXPECT_EQ(moved.tokens, constrained.tokens);
}

TEST_P(GrammarWaitTest, AnAnswerWhoseMasksAreBeyondTheirBudgetEndsAndTheOthersGoOn) {
  const Streamed plain = Alone(1, false);
  Rig rig(GetParam());
  rig.SetMaskCost(absl::Milliseconds(505));
  const Streamed& dear = rig.Submit(0, true);
  const Streamed& other = rig.Submit(1, false);
  rig.Finish();
  ASSERT_TRUE(dear.over());
  EXPECT_TRUE(absl::IsInvalidArgument(*dear.end)) << *dear.end;
  EXPECT_THAT(dear.end->message(), testing::HasSubstr("start: /[a-z]{3,12}( [a-z]{1,5}){20,40}/"));
  EXPECT_EQ(dear.tokens.size(), 4u) << "each mask is half a second beyond, and 2 s are allowed";
  ExpectSame(other, plain);
}

TEST_P(GrammarWaitTest, TenantsTakeTurnsInMasks) {
  Rig rig(GetParam());
  const Streamed& first = rig.Submit(0, true, {}, true, "a");
  const Streamed& second = rig.Submit(1, true, {}, true, "a");
  const Streamed& other = rig.Submit(2, true, {}, true, "b");
  ASSERT_TRUE(rig.masks().RunOne() && rig.masks().RunOne());
  for (int i = 0; i < 3; ++i) rig.scheduler().Step();
  EXPECT_EQ(first.tokens.size(), 1u);
  EXPECT_EQ(second.tokens.size(), 0u);
  EXPECT_EQ(other.tokens.size(), 1u);
  rig.Finish();
}

TEST_P(GrammarWaitTest, AnAbortEndsWhoeverWaits) {
  Rig rig(GetParam());
  const Streamed& answer = rig.Submit(0, true);
  rig.scheduler().Step();
  rig.scheduler().Step();
  EXPECT_TRUE(answer.tokens.empty());
  rig.scheduler().Abort(absl::UnavailableError("leaving"));
  ASSERT_TRUE(answer.over());
  EXPECT_TRUE(absl::IsUnavailable(*answer.end));
  EXPECT_EQ(rig.engine().pool().counts().held, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, GrammarWaitTest, testing::Values("reference", "cpu"));

}  // namespace
}  // namespace baton::decode_service
