#include "router/api/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace baton::router {
namespace {

using ::testing::StartsWith;

constexpr int64_t kVocabulary = 100;

void ExpectRefused(const absl::Status& status, const std::string& start) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith(start));
}

template <typename Set>
absl::Status Sampling(Set set) {
  v1::SamplingParams sampling;
  set(sampling);
  return CheckSampling(sampling, kVocabulary);
}

TEST(CheckSamplingTest, RefusesWhatIsOutOfRangeByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float bad : {-0.1f, 100.5f, nan, INFINITY}) {
    ExpectRefused(Sampling([&](auto& s) { s.set_temperature(bad); }), "sampling.temperature: ");
  }
  for (float bad : {0.f, -1.f, 1.01f, nan}) {
    ExpectRefused(Sampling([&](auto& s) { s.set_top_p(bad); }), "sampling.top_p: ");
  }
  for (float bad : {-0.1f, 1.1f, nan})
    ExpectRefused(Sampling([&](auto& s) { s.set_min_p(bad); }), "sampling.min_p: ");
  ExpectRefused(Sampling([](auto& s) { s.set_top_k(-1); }), "sampling.top_k: -1");
  for (float bad : {0.f, 10.1f, nan}) {
    ExpectRefused(Sampling([&](auto& s) { s.set_repetition_penalty(bad); }), "sampling.repetition_penalty: ");
  }
  for (float bad : {-2.1f, 2.1f, nan}) {
    ExpectRefused(Sampling([&](auto& s) { s.set_presence_penalty(bad); }), "sampling.presence_penalty: ");
    ExpectRefused(Sampling([&](auto& s) { s.set_frequency_penalty(bad); }), "sampling.frequency_penalty: ");
  }
  ExpectRefused(Sampling([](auto& s) { (*s.mutable_logit_bias())[100] = 1; }),
                "sampling.logit_bias: token id 100");
  ExpectRefused(Sampling([](auto& s) { (*s.mutable_logit_bias())[-1] = 1; }),
                "sampling.logit_bias: token id -1");
  ExpectRefused(Sampling([&](auto& s) { (*s.mutable_logit_bias())[5] = nan; }), "sampling.logit_bias[5]: ");
}

TEST(CheckSamplingTest, TakesTheEdges) {
  EXPECT_TRUE(Sampling([](auto& s) {
                s.set_temperature(0);
                s.set_top_p(1);
                s.set_min_p(0);
                s.set_top_k(0);
                s.set_repetition_penalty(10);
                s.set_presence_penalty(-2);
                s.set_frequency_penalty(2);
                (*s.mutable_logit_bias())[99] = -100;
              }).ok());
}

TEST(CheckStopTest, NamesThePlace) {
  v1::StopConditions stop;
  stop.set_max_tokens(0);
  ExpectRefused(CheckStop(stop, kVocabulary), "stop.max_tokens: 0; ask for at least 1");
  stop.set_max_tokens(1);
  stop.add_stop("x");
  stop.add_stop("");
  ExpectRefused(CheckStop(stop, kVocabulary), "stop.stop[1]: empty");
  stop.set_stop(1, std::string(257, 'x'));
  ExpectRefused(CheckStop(stop, kVocabulary), "stop.stop[1]: 257 bytes");
  stop.set_stop(1, std::string(256, 'x'));
  EXPECT_TRUE(CheckStop(stop, kVocabulary).ok());
  for (int i = 0; i < 15; ++i) stop.add_stop("y");
  ExpectRefused(CheckStop(stop, kVocabulary), "stop.stop: 17 strings");
  stop.clear_stop();
  stop.add_stop_token_ids(3);
  stop.add_stop_token_ids(100);
  ExpectRefused(CheckStop(stop, kVocabulary),
                "stop.stop_token_ids[1]: token id 100 is outside the vocabulary of 100");
}

TEST(CheckOutputTest, BoundsLogprobs) {
  v1::OutputOptions output;
  output.set_logprobs(true);
  output.set_top_logprobs(21);
  ExpectRefused(CheckOutput(output), "output.top_logprobs: 21");
  output.set_top_logprobs(20);
  EXPECT_TRUE(CheckOutput(output).ok());
  output.set_logprobs(false);
  ExpectRefused(CheckOutput(output), "output.top_logprobs: 20 without output.logprobs");
}

TEST(CheckOptionsTest, BoundsChoicesAndPriority) {
  v1::RequestOptions options;
  EXPECT_TRUE(CheckOptions(options).ok());
  for (uint32_t bad : {0u, 9u}) {
    options.set_n(bad);
    ExpectRefused(CheckOptions(options), "options.n: ");
  }
  options.set_n(8);
  EXPECT_TRUE(CheckOptions(options).ok());
  for (int bad : {-11, 11, INT32_MIN}) {
    options.set_priority(bad);
    ExpectRefused(CheckOptions(options), "options.priority: ");
  }
  options.set_priority(-10);
  options.set_speculation(v1::SPECULATION_PAST_ANSWERS);
  EXPECT_TRUE(CheckOptions(options).ok());
  options.set_speculation(static_cast<v1::Speculation>(99));
  ExpectRefused(CheckOptions(options), "options.speculation: 99");
  options.clear_speculation();
  options.set_session_id(std::string(257, 's'));
  ExpectRefused(CheckOptions(options), "options.session_id: 257 bytes");
}

TEST(ResolveSamplingTest, TheRequestThenTheModelThenTheProtocol) {
  model::GenerationDefaults defaults;
  defaults.temperature = 0.3f;
  defaults.top_k = 20;
  v1::SamplingParams asked;
  asked.set_top_k(5);
  asked.set_seed(1);
  const v1::SamplingParams resolved = ResolveSampling(asked, defaults, 42);
  EXPECT_EQ(resolved.temperature(), 0.3f);
  EXPECT_EQ(resolved.top_k(), 5);
  EXPECT_EQ(resolved.top_p(), 1);
  EXPECT_EQ(resolved.seed(), 42u);
  for (bool set : {resolved.has_temperature(), resolved.has_top_k(), resolved.has_top_p(),
                   resolved.has_min_p(), resolved.has_seed(), resolved.has_repetition_penalty(),
                   resolved.has_presence_penalty(), resolved.has_frequency_penalty()}) {
    EXPECT_TRUE(set);
  }
}

TEST(ResolveSamplingTest, AModelThatDoesNotSampleIsGreedyUnlessAsked) {
  model::GenerationDefaults defaults;
  defaults.do_sample = false;
  defaults.temperature = 0.7f;
  EXPECT_EQ(ResolveSampling({}, defaults, 1).temperature(), 0);
  v1::SamplingParams asked;
  asked.set_temperature(0.9f);
  EXPECT_EQ(ResolveSampling(asked, defaults, 1).temperature(), 0.9f);
}

TEST(ResolveMaxTokensTest, StaysInTheContext) {
  model::GenerationDefaults defaults;
  EXPECT_EQ(*ResolveMaxTokens({}, defaults, 30, 100), 70u);
  defaults.max_new_tokens = 50;
  EXPECT_EQ(*ResolveMaxTokens({}, defaults, 30, 100), 50u);
  EXPECT_EQ(*ResolveMaxTokens({}, defaults, 80, 100), 20u);
  v1::StopConditions stop;
  stop.set_max_tokens(70);
  EXPECT_EQ(*ResolveMaxTokens(stop, defaults, 30, 100), 70u);
  stop.set_max_tokens(71);
  ExpectRefused(ResolveMaxTokens(stop, defaults, 30, 100).status(),
                "stop.max_tokens: a prompt of 30 tokens and 71 more exceed the context of 100");
  ExpectRefused(ResolveMaxTokens({}, defaults, 100, 100).status(), "prompt: 100 tokens leave no room");
}

// As large as a trace gets: all ids and counts of a vocabulary of 128,000, eleven tokens, no filter.
TEST(TokensOfMessageTest, TracesFitTheMessageThatTheyAreCountedFor) {
  constexpr int kIds = 128000;
  v1::SamplingTrace trace;
  trace.set_how(v1::SamplingTrace::HOW_DRAWN);
  trace.set_token_id(kIds - 1);
  trace.set_vocabulary(kIds);
  trace.set_after_constraint(kIds);
  trace.set_after_temperature(kIds);
  trace.set_after_top_k(kIds);
  trace.set_after_top_p(kIds);
  trace.set_after_min_p(kIds);
  trace.set_uniform(0.3);
  for (int i = 0; i < 11; ++i) {
    v1::TokenTrace& one = *trace.add_likeliest();
    one.set_token_id(kIds - 1 - i);
    one.set_bytes(" seven");
    one.set_logit(1.5f);
    one.set_adjusted_logit(1.5f);
    one.set_probability(0.01f);
    one.set_tempered_probability(0.01f);
    one.set_drawn_probability(0.01f);
  }
  v1::OutputOptions output;
  output.set_explain(true);
  constexpr uint32_t kMessage = 4 << 20;
  v1::AnswerChoice choice;
  for (int64_t i = TokensOfMessage(output, kMessage, 1); i > 0; --i) {
    *choice.add_sampling() = trace;
    choice.mutable_text()->append(" seven");
  }
  EXPECT_LE(choice.ByteSizeLong(), kMessage);
}

}  // namespace
}  // namespace baton::router
