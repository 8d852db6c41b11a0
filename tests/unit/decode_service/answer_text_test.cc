#include "decode_service/answer_text.h"

#include <gtest/gtest.h>

namespace baton::decode_service {
namespace {

class AnswerTextTest : public testing::Test {
 protected:
  std::vector<TokenId> Encode(const std::string& text) { return tokenizer_->Encode(text, false).value(); }

  // Pushes all tokens; returns the text and where it ended.
  std::pair<std::string, std::optional<AnswerText::End>> Run(AnswerText& answer,
                                                             const std::vector<TokenId>& tokens) {
    std::string text;
    for (TokenId token : tokens) {
      v1::Delta delta;
      const auto end = answer.Push({.token = token}, 0, delta);
      text += delta.text();
      if (end.has_value()) return {text, end};
    }
    return {text, std::nullopt};
  }

  static v1::StopConditions Stop(uint32_t max_tokens, const std::vector<std::string>& strings = {}) {
    v1::StopConditions stop;
    stop.set_max_tokens(max_tokens);
    for (const std::string& text : strings) stop.add_stop(text);
    return stop;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  const std::vector<TokenId> eos_ = {TokenId(2)};
};

TEST_F(AnswerTextTest, EndsAtMaxTokensWithAllTextOut) {
  const auto tokens = Encode("The fox went home. \xF0\x9F\x98\x80 Then it slept.");
  AnswerText answer(tokenizer_, Stop(static_cast<uint32_t>(tokens.size())), {}, 0, eos_);
  const auto [text, end] = Run(answer, tokens);
  EXPECT_EQ(text, "The fox went home. \xF0\x9F\x98\x80 Then it slept.");
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->reason, v1::FINISH_REASON_LENGTH);
}

TEST_F(AnswerTextTest, AStopStringAcrossTokensIsNeverShown) {
  const auto tokens = Encode("one two three four five");
  AnswerText answer(tokenizer_, Stop(100, {"ee fo"}), {}, 0, eos_);
  const auto [text, end] = Run(answer, tokens);
  EXPECT_EQ(text, "one two thr");
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->reason, v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(end->stop_match, "ee fo");
}

TEST_F(AnswerTextTest, WhatWasHeldBackForAStopStringComesOutAtTheEnd) {
  auto tokens = Encode("one two thr");
  tokens.push_back(TokenId(2));
  AnswerText answer(tokenizer_, Stop(100, {"three"}), {}, 0, eos_);
  const auto [text, end] = Run(answer, tokens);
  EXPECT_EQ(text, "one two thr");
  EXPECT_EQ(end->reason, v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(end->stop_token, TokenId(2));
}

TEST_F(AnswerTextTest, IgnoreEosGoesOnButHeedsOnesOwnStopTokens) {
  v1::StopConditions stop = Stop(100);
  stop.set_ignore_eos(true);
  stop.add_stop_token_ids(50);
  AnswerText answer(tokenizer_, stop, {}, 0, eos_);
  const auto [text, end] = Run(answer, {TokenId(2), TokenId(60), TokenId(50), TokenId(61)});
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->stop_token, TokenId(50));
  EXPECT_EQ(answer.tokens(), 3);
}

TEST_F(AnswerTextTest, ResumedTokensAreNotSentAgainAndCountTowardsTheLimit) {
  const auto tokens = Encode("one two three four");
  const auto half = static_cast<int64_t>(tokens.size() / 2);
  AnswerText whole(tokenizer_, Stop(static_cast<uint32_t>(tokens.size())), {}, 0, eos_);
  AnswerText resumed(tokenizer_, Stop(static_cast<uint32_t>(tokens.size())), {}, 0, eos_);
  EXPECT_FALSE(resumed.Resume(std::span(tokens).first(half)).value().has_value());
  const std::string all = Run(whole, tokens).first;
  const auto [rest, end] = Run(resumed, {tokens.begin() + half, tokens.end()});
  EXPECT_TRUE(all.ends_with(rest));
  EXPECT_LT(rest.size(), all.size());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->reason, v1::FINISH_REASON_LENGTH);
}

// The break may fall anywhere: inside a character, inside a stop string, after the last token.
TEST_F(AnswerTextTest, ResumingAnywhereContinuesTheTextAndFindsTheSameEnd) {
  const auto tokens = Encode("So \xF0\x9F\x98\x80\xF0\x9F\x98\x80 it slept. Then ee four and more");
  for (const v1::StopConditions& stop :
       {Stop(100, {"ee fo"}), Stop(static_cast<uint32_t>(tokens.size()), {"ee foxes"}), Stop(4)}) {
    // The text of the undisturbed run, token by token.
    AnswerText whole(tokenizer_, stop, {}, 0, eos_);
    std::vector<std::string> shown;
    std::optional<AnswerText::End> end;
    for (size_t i = 0; i < tokens.size() && !end.has_value(); ++i) {
      v1::Delta delta;
      end = whole.Push({.token = tokens[i]}, 0, delta);
      shown.push_back(delta.text());
    }
    ASSERT_TRUE(end.has_value());
    for (size_t at = 0; at <= shown.size(); ++at) {
      SCOPED_TRACE(at);
      AnswerText resumed(tokenizer_, stop, {}, 0, eos_);
      auto reached = resumed.Resume(std::span(tokens).first(at)).value();
      ASSERT_EQ(reached.has_value(), at == shown.size());
      for (size_t i = at; i < shown.size(); ++i) {
        v1::Delta delta;
        reached = resumed.Push({.token = tokens[i]}, 0, delta);
        EXPECT_EQ(delta.text(), shown[i]) << i;
        EXPECT_EQ(reached.has_value(), i + 1 == shown.size());
      }
      EXPECT_EQ(reached->reason, end->reason);
      EXPECT_EQ(reached->stop_match, end->stop_match);
    }
    if (shown.size() < tokens.size()) {
      AnswerText beyond(tokenizer_, stop, {}, 0, eos_);
      EXPECT_TRUE(absl::IsInvalidArgument(beyond.Resume(std::span(tokens).first(shown.size() + 1)).status()));
    }
  }
}

TEST_F(AnswerTextTest, DeltasCarryWhatWasAskedForAndNoMore) {
  AnswerText plain(tokenizer_, Stop(9), {}, 3, eos_);
  v1::Delta delta;
  plain.Push({.token = TokenId(60)}, 7, delta);
  EXPECT_EQ(delta.choice(), 3u);
  EXPECT_EQ(delta.tokens(), 1u);
  EXPECT_TRUE(delta.token_ids().empty());
  EXPECT_TRUE(delta.logits_digests().empty());
  v1::OutputOptions output;
  output.set_token_ids(true);
  output.set_logits_digest(true);
  output.set_logprobs(true);
  output.set_top_logprobs(1);
  AnswerText full(tokenizer_, Stop(9), output, 0, eos_);
  EXPECT_EQ(full.logprobs(), 1);
  v1::Delta all;
  full.Push({.token = TokenId(60), .logprob = -0.5f, .top = {{TokenId(61), -0.25f}}}, 7, all);
  EXPECT_EQ(all.token_ids(0), 60);
  EXPECT_EQ(all.logits_digests(0), 7u);
  EXPECT_EQ(all.logprobs(0).chosen().logprob(), -0.5f);
  EXPECT_EQ(all.logprobs(0).chosen().bytes(), std::string(tokenizer_->TokenBytes(TokenId(60))));
  EXPECT_EQ(all.logprobs(0).top(0).token_id(), 61);
  EXPECT_TRUE(all.sampling().empty());
}

TEST_F(AnswerTextTest, ATraceIsToldWithItsTokensBytes) {
  v1::OutputOptions output;
  EXPECT_FALSE(AnswerText(tokenizer_, Stop(9), output, 0, eos_).explains());
  output.set_explain(true);
  AnswerText answer(tokenizer_, Stop(9), output, 0, eos_);
  EXPECT_TRUE(answer.explains());
  EXPECT_TRUE(answer.shows_logits()) << "a device must hand them over";
  sampling::Draw draw{.token = TokenId(60)};
  draw.trace = sampling::Trace{.how = sampling::Trace::How::kDrawn,
                               .token = TokenId(60),
                               .vocabulary = 600,
                               .after_mask = 500,
                               .after_temperature = 400,
                               .after_top_k = 300,
                               .after_top_p = 200,
                               .after_min_p = 100,
                               .uniform = 0.25,
                               .likeliest = {{.token = TokenId(60),
                                              .logit = 3,
                                              .adjusted = 2,
                                              .probability = 0.5,
                                              .tempered = 0.625,
                                              .drawn = 0.75}}};
  v1::Delta delta;
  answer.Push(draw, 7, delta);
  draw.trace->how = sampling::Trace::How::kForced;
  draw.trace->uniform.reset();
  answer.Push(draw, 7, delta);
  ASSERT_EQ(delta.sampling_size(), 2) << "one for each token of the delta";
  const std::string bytes(tokenizer_->TokenBytes(TokenId(60)));
  EXPECT_EQ(
      delta.sampling(0).ShortDebugString(),
      "how: HOW_DRAWN token_id: 60 vocabulary: 600 after_constraint: 500 after_temperature: 400 "
      "after_top_k: 300 after_top_p: 200 after_min_p: 100 uniform: 0.25 likeliest { token_id: 60 bytes: "
      "\"" +
          bytes +
          "\" logit: 3 adjusted_logit: 2 probability: 0.5 tempered_probability: 0.625 "
          "drawn_probability: 0.75 }");
  EXPECT_EQ(delta.sampling(1).how(), v1::SamplingTrace::HOW_FORCED);
  EXPECT_FALSE(delta.sampling(1).has_uniform());
  // At low temperatures a token that is kept has less than a float can say.
  draw.trace->likeliest.front().drawn = 1e-90;
  draw.trace->likeliest.front().tempered = 0;
  answer.Push(draw, 7, delta);
  EXPECT_GT(delta.sampling(2).likeliest(0).drawn_probability(), 0);
  EXPECT_EQ(delta.sampling(2).likeliest(0).tempered_probability(), 0);
}

}  // namespace
}  // namespace baton::decode_service
