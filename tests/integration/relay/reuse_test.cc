// Prompts with reusable spans through the relay: the answer is a function of the request, whatever is cached
// where, whichever worker computed it, and whatever breaks on the way.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/relay/relay.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Values;

constexpr int64_t kAnswer = 8;

struct Marked {
  std::vector<TokenId> tokens;
  std::vector<kv::ReusableSpan> spans;
};

// A question about documents in the order of `order`, of so many sentences and more.
Marked AskOf(int sentences, const std::vector<int>& order, int question) {
  const auto tokenizer = text::Tokenizer::Load(kShippedModel).value();
  const auto encode = [&](const std::string& text) { return tokenizer->Encode(text, false).value(); };
  Marked prompt;
  const auto append = [&](const std::vector<TokenId>& tokens) {
    prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
  };
  prompt.tokens = tokenizer->Encode("Read this.", true).value();
  const char* const animals[] = {"fox", "bear", "rabbit", "mouse"};
  for (const int number : order) {
    append(encode("\n\nStory: "));
    std::string story;
    for (int i = 0; i < sentences + number; ++i) {
      story += fmt::format("The {} went to the river {} times and met {} friends. ", animals[number],
                           i + number, i * 3 + 1);
    }
    const auto begin = std::ssize(prompt.tokens);
    append(encode(story));
    prompt.spans.push_back({begin, std::ssize(prompt.tokens)});
  }
  append(encode(fmt::format("\n\nWho went to the river {} times?", question)));
  return prompt;
}

class ReuseRelayTest : public ::testing::TestWithParam<std::string> {
 protected:
  baton::testing::Setup With() const {
    return {.local_prefill = 16, .backend = GetParam(), .chunk_reuse = true};
  }
  // The reference takes its time: two documents.
  static Marked Ask(std::vector<int> order, int question = 0) {
    if (GetParam() != "reference") return AskOf(6, order, question);
    order.resize(2);
    return AskOf(3, order, question);
  }
  static SequenceId Start(Relay& relay, const Marked& prompt, Answer& answer,
                          std::vector<std::string> targets = {"a", "b"}) {
    return relay.Ask(prompt.tokens, {.temperature = 0.7f, .seed = 5}, kAnswer, answer, std::move(targets),
                     "tenant", {}, {}, prompt.spans);
  }
  static Answer Get(Relay& relay, const Marked& prompt, std::vector<std::string> targets = {"a", "b"}) {
    Answer answer;
    Start(relay, prompt, answer, std::move(targets));
    relay.RunUntilIdle();
    EXPECT_TRUE(answer.status.has_value() && answer.status->ok()) << answer.status.value_or(absl::OkStatus());
    relay.ExpectNothingHeld();
    return answer;
  }
  Answer Cold(const Marked& prompt) const {
    Relay relay(With());
    return Get(relay, prompt);
  }
  static void ExpectSame(const Answer& a, const Answer& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.digests, b.digests) << "the logits differ";
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, ReuseRelayTest, Values("reference", "cpu"),
                         [](const auto& info) { return info.param; });

TEST_P(ReuseRelayTest, WarmAnswersHaveTheBitsOfColdOnes) {
  const std::vector<Marked> prompts = {Ask({0, 1, 2, 3}), Ask({1, 0, 3, 2}, 4)};
  std::vector<Answer> cold;
  for (const Marked& prompt : prompts) cold.push_back(Cold(prompt));
  EXPECT_NE(cold[0].digests, cold[1].digests);
  Relay relay(With());
  for (const size_t which : {0, 1, 0, 1}) {
    // Each of the two prefill workers, and at last what the decode worker has.
    const Answer answer = Get(relay, prompts[which], {which == 0 ? "a" : "b"});
    ExpectSame(answer, cold[which]);
    const v1::Usage& usage = answer.finished->usage();
    EXPECT_EQ(usage.approximate_reused_tokens(), kv::LandedTokens(prompts[which].spans));
    EXPECT_LE(usage.decode_cached_tokens() + usage.prefill_cached_tokens(), usage.prompt_tokens());
  }
  const auto before = relay.client().calls_started();
  const Answer again = Get(relay, prompts[1], {"a"});
  ExpectSame(again, cold[1]);
  EXPECT_EQ(relay.client().calls_started(), before) << "all but the question is on the decode worker";
}

TEST_P(ReuseRelayTest, DocumentsAreFoundInAnotherOrder) {
  Relay relay(With());
  EXPECT_EQ(Get(relay, Ask({0, 1, 2, 3}), {"a"}).finished->usage().prefill_cached_tokens(), 0u);
  const Marked other = Ask({1, 0, 3, 2});
  const v1::Usage usage = Get(relay, other, {"a"}).finished->usage();
  EXPECT_EQ(usage.decode_cached_tokens(), 0u);
  EXPECT_EQ(usage.prefill_cached_tokens(), static_cast<uint64_t>(kv::LandedTokens(other.spans)));
}

TEST_P(ReuseRelayTest, ExactAnswersAreThoseOfTheEngineAlone) {
  const Marked marked = Ask({0, 1, 2, 3});
  Relay relay(With());
  const Answer approximate = Get(relay, marked);
  const auto engine = MakeEngine(256, GetParam());
  const auto alone =
      engine::GenerateSolo(*engine, marked.tokens, {.temperature = 0.7f, .seed = 5}, kAnswer, {}, 0).value();
  EXPECT_NE(approximate.digests, alone.logits_digests) << "reuse is approximate, or this shows nothing";
  for (int round = 0; round < 2; ++round) {
    const Answer exact = Get(relay, {marked.tokens, {}});
    EXPECT_EQ(exact.tokens, alone.tokens);
    EXPECT_EQ(exact.digests, alone.logits_digests);
    EXPECT_EQ(exact.finished->usage().approximate_reused_tokens(), 0u);
    ExpectSame(Get(relay, marked), approximate);
  }
}

TEST_P(ReuseRelayTest, AnotherWorkerGoesOnWhereOneBreaksOff) {
  const Marked prompt = Ask({1, 0, 3, 2});
  const Answer cold = Cold(prompt);
  for (int at : GetParam() == "reference" ? std::vector{9} : std::vector{1, 4, 8, 15, 30, 60}) {
    Relay relay(With());
    relay.client().SetFault("a", [at](int index, fleet::v1::PrefillEvent&, bool&) {
      return index == at ? absl::UnavailableError("the worker is gone") : absl::OkStatus();
    });
    ExpectSame(Get(relay, prompt), cold);
  }
}

TEST_P(ReuseRelayTest, PreemptedAnswersGoOnWithTheSameBits) {
  const std::vector<Marked> prompts = {Ask({0, 1, 2, 3}), Ask({1, 3, 0, 2}, 4), Ask({1, 2})};
  std::vector<Answer> cold;
  for (const Marked& prompt : prompts) cold.push_back(Cold(prompt));
  baton::testing::Setup setup = With();
  // Room for the prompts, and for no answer of all three.
  setup.decode_blocks = 0;
  for (const Marked& prompt : prompts) setup.decode_blocks += BlocksFor(std::ssize(prompt.tokens) + 1);
  Relay relay(setup);
  std::vector<Answer> answers(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) Start(relay, prompts[i], answers[i]);
  relay.RunUntilIdle();
  for (size_t i = 0; i < prompts.size(); ++i) ExpectSame(answers[i], cold[i]);
  relay.ExpectNothingHeld();
}

TEST_P(ReuseRelayTest, WithoutAPrefillWorkerItEndsAndSaysSo) {
  Relay relay(With());
  for (const std::vector<std::string>& targets : {std::vector<std::string>{}, {"nobody", "nowhere"}}) {
    Answer answer;
    Start(relay, Ask({0, 1}), answer, targets);
    relay.RunUntilIdle();
    ASSERT_TRUE(answer.status.has_value());
    EXPECT_EQ(answer.status->code(), absl::StatusCode::kUnavailable) << *answer.status;
    EXPECT_TRUE(answer.tokens.empty());
    relay.ExpectNothingHeld();
  }
}

TEST_P(ReuseRelayTest, IsRefusedWithoutTheFlag) {
  baton::testing::Setup setup = With();
  setup.chunk_reuse = false;
  Relay relay(setup);
  Answer answer;
  Start(relay, Ask({0, 1}), answer);
  ASSERT_TRUE(answer.status.has_value());
  EXPECT_EQ(answer.status->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(answer.status->message()), HasSubstr("--chunk-reuse"));
  EXPECT_FALSE(answer.accepted);
}

}  // namespace
}  // namespace baton::testing
