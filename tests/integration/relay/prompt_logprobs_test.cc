// Log probabilities of a prompt are those that the model's logits give, whatever is cached, however the
// prompt is cut, and each token is told once.
#include <cmath>

#include "tests/integration/relay/relay.h"

namespace baton {
namespace {

using testing::Answer;
using testing::MakeEngine;
using testing::Relay;

class PromptLogprobsTest : public ::testing::Test {
 protected:
  std::vector<TokenId> Prompt(int64_t size) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < size; ++i) tokens.emplace_back(static_cast<int32_t>(random_() % 2000 + 20));
    return tokens;
  }

  // By the definition, from the logits of one step for the whole prompt: ln softmax.
  static std::vector<double> Defined(const std::vector<TokenId>& prompt) {
    static engine::Engine* const engine = MakeEngine(64).release();  // shared by all tests of the process
    const auto size = static_cast<int64_t>(prompt.size());
    const std::vector<BlockId> blocks = engine->pool().Allocate(BlocksFor(size)).value();
    engine::Batch batch;
    batch.Add({.tokens = prompt, .first_position = 0, .blocks = blocks, .logit_rows = size});
    const engine::StepResult result = engine->Forward(batch, [](int) {});
    std::vector<double> logprobs = {0};
    for (int64_t i = 0; i + 1 < size; ++i) {
      const std::span<const float> logits = result.logits(0, i);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const auto next = static_cast<size_t>(prompt[static_cast<size_t>(i) + 1].value());
      logprobs.push_back(static_cast<double>(logits[next]) - std::log(sum));
    }
    engine->pool().Release(blocks);
    return logprobs;
  }

  // Without its text, which is the token's.
  static std::vector<std::pair<int32_t, float>> Told(const Answer& answer) {
    std::vector<std::pair<int32_t, float>> told;
    for (const v1::StepLogprobs& step : answer.prompt)
      told.emplace_back(step.chosen().token_id(), step.chosen().logprob());
    return told;
  }

  static void ExpectDefined(const Answer& answer, const std::vector<TokenId>& prompt) {
    ASSERT_TRUE(answer.status.has_value());
    EXPECT_TRUE(answer.status->ok()) << *answer.status;
    const std::vector<double> defined = Defined(prompt);
    ASSERT_EQ(answer.prompt.size(), prompt.size());
    EXPECT_TRUE(answer.prompt[0].top().empty());
    for (size_t i = 0; i < prompt.size(); ++i) {
      const v1::StepLogprobs& step = answer.prompt[i];
      EXPECT_EQ(step.chosen().token_id(), prompt[i].value());
      EXPECT_NEAR(step.chosen().logprob(), defined[i], 1e-4) << i;
      if (i == 0) continue;
      ASSERT_EQ(step.top_size(), 2);
      EXPECT_GE(step.top(0).logprob(), step.top(1).logprob());
      EXPECT_GE(step.top(0).logprob(), step.chosen().logprob());
    }
  }

  std::mt19937 random_{7};
};

TEST_F(PromptLogprobsTest, AreThoseOfTheLogitsAtEveryChunkSizeAndCacheState) {
  const std::vector<TokenId> prompt = Prompt(150);
  std::vector<std::vector<std::pair<int32_t, float>>> told;
  const engine::SoloRun alone = [&] {
    const auto engine = MakeEngine(64);
    return engine::GenerateSolo(*engine, prompt, {.temperature = 0}, 6, {}, 0).value();
  }();
  for (const int64_t chunk : {16, 48, 512}) {
    SCOPED_TRACE(chunk);
    Relay relay({.chunk = chunk, .budget = std::max<int64_t>(chunk, 128)});
    Answer before, cold, again;
    relay.Ask(prompt, {.temperature = 0}, 6, before);  // all of it is cached now
    relay.RunUntilIdle();
    EXPECT_TRUE(before.prompt.empty());
    relay.TellPrompts(true);
    for (Answer* const answer : {&cold, &again}) {
      relay.Ask(prompt, {.temperature = 0}, 6, *answer);
      relay.RunUntilIdle();
      ExpectDefined(*answer, prompt);
      told.push_back(Told(*answer));
      EXPECT_EQ(told.back(), told.front()) << "bits differ";
      EXPECT_EQ(answer->tokens, alone.tokens);
      EXPECT_EQ(answer->digests, alone.logits_digests);
      // The prompt is computed again, and counted as computed.
      EXPECT_EQ(answer->finished->usage().cached_tokens(), 0u);
      EXPECT_TRUE(answer->finished->relay().prefill_worker().empty());
    }
    relay.ExpectNothingHeld();
  }
}

TEST_F(PromptLogprobsTest, AreAlsoOfShortPromptsAndOfOnesThatAreOnlyComputed) {
  Relay relay({.chunk = 16, .budget = 32});
  relay.TellPrompts(true);
  for (const int64_t size : {1, 2, 15, 16, 17, 40}) {
    for (const int64_t max_tokens : {0, 3}) {
      SCOPED_TRACE(size);
      const std::vector<TokenId> prompt = Prompt(size);
      Answer answer;
      relay.Ask(prompt, {.temperature = 1, .seed = 3, .frequency_penalty = 1}, max_tokens, answer);
      relay.RunUntilIdle();
      ExpectDefined(answer, prompt);
      EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(max_tokens));
    }
  }
  relay.ExpectNothingHeld();
}

TEST_F(PromptLogprobsTest, NothingOfThemIsKeptForLater) {
  Relay relay({});
  const std::vector<TokenId> prompt = Prompt(100);
  relay.TellPrompts(true);
  Answer told, plain;
  relay.Ask(prompt, {.temperature = 0}, 2, told);
  relay.RunUntilIdle();
  relay.TellPrompts(false);
  relay.Ask(prompt, {.temperature = 0}, 2, plain);
  relay.RunUntilIdle();
  EXPECT_EQ(plain.finished->usage().cached_tokens(), 0u);
  EXPECT_EQ(plain.tokens, told.tokens);
}

TEST_F(PromptLogprobsTest, AWorkerGoesOnWhereAnotherBrokeOff) {
  Relay relay({.chunk = 32, .budget = 64});
  const std::vector<TokenId> prompt = Prompt(100);
  relay.TellPrompts(true);
  Answer whole;
  relay.Ask(prompt, {.temperature = 0}, 2, whole);
  relay.RunUntilIdle();
  for (const int64_t from : {1, 31, 32, 33, 99, 100}) {
    SCOPED_TRACE(from);
    relay.TellPrompts(true, from);
    Answer rest;
    relay.Ask(prompt, {.temperature = 0}, 2, rest);
    relay.RunUntilIdle();
    auto expected = Told(whole);
    expected.erase(expected.begin(), expected.begin() + from);
    EXPECT_EQ(Told(rest), expected);
    EXPECT_EQ(rest.tokens, whole.tokens);
  }
}

// An answer grows while a long prompt is told, until the pool has no block left and the prompt gives up its.
TEST_F(PromptLogprobsTest, APromptThatIsPreemptedInTheMiddleIsToldOnce) {
  Relay relay({.decode_blocks = 21, .chunk = 16, .budget = 16});
  const std::vector<TokenId> short_prompt = Prompt(20), long_prompt = Prompt(290);
  Answer grows, told;
  relay.Ask(short_prompt, {.temperature = 0}, 60, grows, {});
  for (int turn = 0; turn < 4; ++turn) relay.Turn();
  relay.TellPrompts(true);
  relay.Ask(long_prompt, {.temperature = 0}, 2, told);
  size_t before = 0;
  for (int idle = 0; idle < 3;) {
    const uint32_t preempted = static_cast<uint32_t>(told.prompt.size());
    idle = relay.Turn() ? 0 : idle + 1;
    if (told.prompt.size() == preempted && preempted > 0 && preempted < long_prompt.size())
      before = preempted;
  }
  ExpectDefined(told, long_prompt);
  EXPECT_GT(before, 0u) << "it was meant to stand still in its middle";
  EXPECT_GT(told.finished->relay().preemptions(), 0u) << "the pool was meant to be too small";
  relay.ExpectNothingHeld();
}

TEST_F(PromptLogprobsTest, PreemptionAndManyAtOnceTellEachTokenOnce) {
  Relay relay({.decode_blocks = 20, .chunk = 32});
  relay.TellPrompts(true);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Answer> answers(4);
  for (size_t i = 0; i < answers.size(); ++i) {
    prompts.push_back(Prompt(60));
    relay.Ask(prompts[i], {.temperature = 0.7f, .seed = i}, 90, answers[i]);
  }
  relay.RunUntilIdle();
  uint32_t preemptions = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    ExpectDefined(answers[i], prompts[i]);
    EXPECT_EQ(answers[i].tokens.size(), 90u);
    preemptions += answers[i].finished->relay().preemptions();
  }
  EXPECT_GT(preemptions, 0u) << "the pool was meant to be too small";
  relay.ExpectNothingHeld();
}

// A client that does not read is not filled up: its prompt waits.
TEST_F(PromptLogprobsTest, ASlowClientsPromptWaits) {
  Relay relay({.chunk = 16, .budget = 32});
  relay.TellPrompts(true);
  const std::vector<TokenId> prompt = Prompt(120);
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 2, answer);
  relay.Turn();
  relay.SetClientCongested(true);
  for (int turn = 0; turn < 10; ++turn) relay.Turn();
  EXPECT_LE(answer.prompt.size(), 32u);
  relay.SetClientCongested(false);
  relay.RunUntilIdle();
  ExpectDefined(answer, prompt);
}

}  // namespace
}  // namespace baton
