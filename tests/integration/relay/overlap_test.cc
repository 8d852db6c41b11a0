// Steps that overlap: the next one is launched before the tokens of the last are known. The reference backend
// draws tokens itself, as GPUs do, so its scheduler overlaps steps as theirs does; no token may differ, and
// what a step under way may still read or write is nobody else's.
#include <algorithm>
#include <cstring>

#include "spdlog/spdlog.h"
#include "tests/integration/relay/relay.h"

namespace baton {
namespace {

using testing::Answer;
using testing::MakeEngine;
using testing::Relay;
using testing::Setup;

// Two layers of four heads of 16, 150 tokens, a context of 256.
constexpr char kSmallModel[] = BATON_SOURCE_DIR "/tests/golden/models/data/llama-mha";

Setup Overlapping(int64_t blocks = 256, int64_t local_prefill = 16) {
  return {.decode_blocks = blocks,
          .prefill_blocks = 256,
          .chunk = 32,
          .local_prefill = local_prefill,
          .backend = "reference",
          .model = kSmallModel,
          .logits_digests = false};
}

class OverlapTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::off); }

  std::vector<TokenId> Prompt(int64_t size) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < size; ++i) tokens.emplace_back(static_cast<int32_t>(random_() % 147 + 3));
    return tokens;
  }
  // One token at a time, in one engine.
  std::vector<TokenId> Alone(const std::vector<TokenId>& prompt, const sampling::Params& params,
                             int64_t max_tokens, std::span<const TokenId> stops = {}) {
    return engine::GenerateSolo(*judge_, prompt, params, max_tokens, stops, 0).value().tokens;
  }
  // Until a step is under way while `answer` has some tokens.
  static void RunUntilUnderWay(Relay& relay, const Answer& answer, size_t tokens) {
    while (answer.tokens.size() < tokens || !relay.scheduler().step_in_flight()) {
      ASSERT_TRUE(relay.Turn()) << "idle before any step overlapped";
    }
  }

  const uint32_t seed_ = 29;
  std::mt19937 random_{seed_};
  const std::unique_ptr<engine::Engine> judge_ = MakeEngine(64, "reference", kSmallModel);
};

TEST_F(OverlapTest, NoTokenDiffers) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed_);
  int64_t overlapped = 0, written_beside = 0;
  uint32_t preemptions = 0;
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    struct Asked {
      std::vector<TokenId> prompt;
      sampling::Params params;
      int64_t max_tokens = 0;
      std::vector<TokenId> stops;
      SequenceId id{0};
      int cancel_after = 1 << 20;  // tokens
      Answer answer;
    };
    std::vector<Asked> all(16);
    // Every other round there is room for a few of them only; in some, prompts are computed here.
    Relay relay(Overlapping(round % 2 == 0 ? 256 : 24, round % 3 == 0 ? 64 : 0));
    const auto turn = [&] {
      // Prompts come while one and the same step is under way.
      for (uint32_t pumps = random_() % 4; pumps > 0; --pumps) relay.client().Pump();
      const bool more = relay.Turn();
      overlapped += relay.scheduler().step_in_flight() ? 1 : 0;
      for (Asked& asked : all) {
        if (std::ssize(asked.answer.tokens) < asked.cancel_after) continue;
        relay.scheduler().Cancel(asked.id);
        asked.cancel_after = 1 << 20;
      }
      return more;
    };
    for (Asked& asked : all) {
      asked.prompt = Prompt(5 + static_cast<int64_t>(random_() % 60));
      asked.params = {.temperature = random_() % 3 == 0 ? 0.0f : 1.0f, .top_k = 40, .seed = random_()};
      if (random_() % 3 == 0) {
        asked.params.repetition_penalty = 1.1f;
        asked.params.frequency_penalty = 0.7f;
      }
      if (random_() % 3 == 0)
        asked.params.logit_bias = {{TokenId(static_cast<int32_t>(random_() % 75)), 4.0f},
                                   {TokenId(80), -100.0f}};
      asked.max_tokens = 1 + static_cast<int64_t>(random_() % 40);
      for (int i = 0; i < 4; ++i) asked.stops.emplace_back(static_cast<int32_t>(random_() % 150));
      if (random_() % 5 == 0) asked.cancel_after = 1 + static_cast<int>(random_() % 10);
      const std::vector<std::string> targets = {"a", "b"};
      while (true) {
        asked.id = relay.Ask(asked.prompt, asked.params, asked.max_tokens, asked.answer, targets, "tenant",
                             asked.stops);
        if (asked.answer.accepted) break;
        ASSERT_EQ(asked.answer.status->code(), absl::StatusCode::kResourceExhausted) << *asked.answer.status;
        asked.answer.status.reset();
        turn();
      }
      turn();
    }
    for (int idle = 0; idle < 3;) idle = turn() ? 0 : idle + 1;
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      const Asked& asked = all[i];
      std::vector<TokenId> expected = Alone(asked.prompt, asked.params, asked.max_tokens, asked.stops);
      if (asked.answer.status.has_value()) {
        EXPECT_TRUE(asked.answer.status->ok()) << *asked.answer.status;
        preemptions += asked.answer.finished->relay().preemptions();
        EXPECT_EQ(asked.answer.finished->usage().completion_tokens(), expected.size());
      } else {  // cancelled
        ASSERT_LE(asked.answer.tokens.size(), expected.size());
        expected.resize(asked.answer.tokens.size());
      }
      EXPECT_EQ(asked.answer.tokens, expected);
    }
    relay.ExpectNothingHeld();
    written_beside += relay.link().beside_steps();
  }
  EXPECT_GT(overlapped, 100);
  EXPECT_GT(written_beside, 20);
  EXPECT_GT(preemptions, 0u);
}

TEST_F(OverlapTest, StepsOverlapWherePenaltiesAreAskedFor) {
  Relay relay(Overlapping());
  const sampling::Params params = {.temperature = 0, .presence_penalty = 0.5f, .frequency_penalty = 0.5f};
  const std::vector<TokenId> prompt = Prompt(40);
  Answer answer;
  relay.Ask(prompt, params, 30, answer);
  int overlapped = 0;
  while (!answer.status.has_value()) {
    ASSERT_TRUE(relay.Turn());
    overlapped += relay.scheduler().step_in_flight() ? 1 : 0;
  }
  EXPECT_GT(overlapped, 25);
  EXPECT_EQ(answer.tokens, Alone(prompt, params, 30));
  EXPECT_NE(answer.tokens, Alone(prompt, {.temperature = 0}, 30));
}

// Its one row is drawn from like a running sequence's, and is none yet.
TEST_F(OverlapTest, APromptOfWhichOneTokenIsLeftIsComputedOnce) {
  Relay relay(Overlapping());
  const std::vector<TokenId> prompt = Prompt(2 * kBlockTokens + 1);
  const sampling::Params params = {.temperature = 1, .seed = 8};
  for (int64_t cached : {0, 2}) {
    Answer answer;
    relay.Ask(prompt, params, 12, answer);
    relay.RunUntilIdle();
    ASSERT_TRUE(answer.finished.has_value());
    EXPECT_EQ(answer.finished->usage().decode_cached_tokens(), cached * kBlockTokens);
    EXPECT_EQ(answer.tokens, Alone(prompt, params, 12));
  }
  relay.ExpectNothingHeld();
}

TEST_F(OverlapTest, ACancelledSequenceKeepsItsBlocksUntilItsStepHasLanded) {
  Relay relay(Overlapping());
  Answer answer;
  const SequenceId id = relay.Ask(Prompt(40), {.temperature = 0}, 30, answer);
  RunUntilUnderWay(relay, answer, 3);
  const int64_t held = relay.decode().pool().counts().held;
  EXPECT_GE(held, 3);
  relay.scheduler().Cancel(id);
  EXPECT_EQ(relay.scheduler().sequences(), 0u);
  EXPECT_EQ(relay.decode().pool().counts().held, held) << "the step under way still writes there";
  relay.RunUntilIdle();
  relay.ExpectNothingHeld();
}

TEST_F(OverlapTest, AStopTokenEndsTheAnswerThoughItsNextRowIsUnderWay) {
  const std::vector<TokenId> prompt = Prompt(40);
  const std::vector<TokenId> whole = Alone(prompt, {.temperature = 1, .seed = 3}, 30);
  size_t at = 5;  // the first token from there on that has not come before
  while (std::find(whole.begin(), whole.begin() + static_cast<int64_t>(at), whole[at]) !=
         whole.begin() + static_cast<int64_t>(at)) {
    ASSERT_LT(++at, whole.size());
  }
  Relay relay(Overlapping());
  Answer answer, other;
  relay.Ask(prompt, {.temperature = 1, .seed = 3}, 30, answer, {"a"}, "tenant", std::span(&whole[at], 1));
  while (!answer.status.has_value()) ASSERT_TRUE(relay.Turn());
  EXPECT_TRUE(answer.status->ok()) << *answer.status;
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(whole.begin(), whole.begin() + static_cast<int64_t>(at) + 1));
  EXPECT_EQ(answer.finished->usage().completion_tokens(), at + 1);
  EXPECT_TRUE(relay.scheduler().step_in_flight());
  EXPECT_GT(relay.decode().pool().counts().held, 0) << "the row in vain still writes there";
  relay.RunUntilIdle();
  relay.ExpectNothingHeld();
  // KV of the row behind the answer's end is in no cache.
  relay.Ask(prompt, {.temperature = 1, .seed = 3}, 30, other, {"a"});
  relay.RunUntilIdle();
  EXPECT_EQ(other.tokens, whole);
}

TEST_F(OverlapTest, AnAnswerThatFillsTheContextComputesNoRowBeyondIt) {
  Relay relay(Overlapping());
  const std::vector<TokenId> prompt = Prompt(200);
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 56, answer);  // 256 in all
  while (!answer.status.has_value()) ASSERT_TRUE(relay.Turn());
  EXPECT_FALSE(relay.scheduler().step_in_flight()) << "a row for a position that there is not";
  EXPECT_EQ(answer.tokens, Alone(prompt, {.temperature = 0}, 56));
  relay.ExpectNothingHeld();
}

TEST_F(OverlapTest, LogitsThatAreNoNumbersEndTheRequestAlone) {
  Relay relay(Overlapping());
  const std::vector<TokenId> prompt = Prompt(40);
  Answer broken, well;
  relay.Ask(prompt, {.temperature = 0}, 30, broken);
  RunUntilUnderWay(relay, broken, 3);
  // NaN in the KV of all positions so far.
  for (int64_t block = 0; block < relay.decode().pool().counts().total; ++block) {
    const BlockId id(static_cast<uint32_t>(block));
    std::memset(relay.decode().store().block(id), 0xFF,
                static_cast<size_t>(relay.decode().store().layout().block_bytes()));
  }
  relay.Ask(Prompt(30), {.temperature = 0}, 30, well, {"a"}, "another tenant");
  relay.RunUntilIdle();
  ASSERT_TRUE(broken.status.has_value());
  EXPECT_EQ(broken.status->code(), absl::StatusCode::kInternal) << *broken.status;
  EXPECT_THAT(std::string(broken.status->message()), ::testing::HasSubstr("all 150 logits are NaN"));
  ASSERT_TRUE(well.status.has_value());
  EXPECT_TRUE(well.status->ok()) << *well.status;
  EXPECT_EQ(well.tokens.size(), 30u);
  relay.ExpectNothingHeld();
}

TEST_F(OverlapTest, AbortWaitsForTheStepUnderWay) {
  Relay relay(Overlapping());
  Answer answer;
  relay.Ask(Prompt(40), {.temperature = 0}, 30, answer);
  RunUntilUnderWay(relay, answer, 3);
  relay.scheduler().Abort(absl::UnavailableError("leaving"));
  EXPECT_FALSE(relay.scheduler().step_in_flight());
  EXPECT_EQ(answer.status->code(), absl::StatusCode::kUnavailable);
  relay.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton
