// Traces of draws through real processes: the same tokens, text and logits with and without them, one for
// each token, through drafts, constraints, stop strings, several choices, and a worker that dies in the
// middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "tests/e2e/folded_answer.h"

namespace baton::e2e {
namespace {

v1::GenerateRequest Explained(uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text("Once upon a time, in a house beside the river, there lived");
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.9f);
  sampling.set_top_k(40);
  sampling.set_top_p(0.95f);
  sampling.set_min_p(0.01f);
  sampling.set_repetition_penalty(1.1f);
  sampling.set_seed(38);
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logits_digest(true);
  return request;
}

// The random number lies in the chosen token's share of the distribution.
void ExpectPicked(const v1::SamplingTrace& trace) {
  double before = 0;
  for (int i = 0; i < std::min(10, trace.likeliest_size()); ++i) {
    const double share = trace.likeliest(i).drawn_probability();
    if (trace.likeliest(i).token_id() == trace.token_id()) {
      EXPECT_GE(trace.uniform(), before - 1e-5);
      EXPECT_LE(trace.uniform(), before + share + 1e-5);
      return;
    }
    before += share;
  }
  EXPECT_GE(trace.uniform(), before - 1e-5) << "it is none of the ten";
}

// Each token has a trace, and the trace's numbers agree with each other.
void ExpectTraces(const v1::AnswerChoice& choice) {
  ASSERT_EQ(choice.sampling_size(), choice.token_ids_size());
  for (int i = 0; i < choice.sampling_size(); ++i) {
    const v1::SamplingTrace& trace = choice.sampling(i);
    SCOPED_TRACE(trace.ShortDebugString());
    EXPECT_EQ(trace.token_id(), choice.token_ids(i));
    EXPECT_LE(trace.after_constraint(), trace.vocabulary());
    EXPECT_LE(trace.after_temperature(), trace.after_constraint());
    EXPECT_LE(trace.after_top_k(), trace.after_temperature());
    EXPECT_LE(trace.after_top_p(), trace.after_top_k());
    EXPECT_LE(trace.after_min_p(), trace.after_top_p());
    EXPECT_GE(trace.after_min_p(), 1u);
    EXPECT_EQ(trace.has_uniform(), trace.how() == v1::SamplingTrace::HOW_DRAWN);
    if (trace.how() == v1::SamplingTrace::HOW_DRAWN) ExpectPicked(trace);
    const auto chosen = std::ranges::find(trace.likeliest(), trace.token_id(),
                                          [](const auto& one) { return one.token_id(); });
    ASSERT_NE(chosen, trace.likeliest().end());
    if (trace.how() != v1::SamplingTrace::HOW_FORCED) {
      EXPECT_GT(chosen->drawn_probability(), 0);
    }
  }
}

// The answer with traces, which is otherwise the one without.
template <typename Request>
v1::ChatUnaryResponse ExpectSameWithTraces(Fleet& fleet, Request request) {
  const auto ask = [&](bool explain) {
    request.mutable_output()->set_explain(explain);
    const FoldedAnswer folded = Fold(fleet, request);
    EXPECT_TRUE(folded.status.ok()) << folded.status.error_message();
    return folded.answer;
  };
  const v1::ChatUnaryResponse plain = ask(false), explained = ask(true);
  EXPECT_EQ(plain.choices_size(), explained.choices_size());
  for (int i = 0; i < std::min(plain.choices_size(), explained.choices_size()); ++i) {
    v1::AnswerChoice a = plain.choices(i), b = explained.choices(i);
    EXPECT_TRUE(a.sampling().empty());
    EXPECT_GT(a.token_ids_size(), 0);
    EXPECT_EQ(a.finished().reason(), b.finished().reason());
    ExpectTraces(b);
    for (v1::AnswerChoice* const one : {&a, &b}) {
      one->clear_finished();
      one->clear_sampling();
    }
    EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString());
  }
  return explained;
}

TEST(ExplainTest, AnAnswerIsTheSameWithItsTraces) {
  Fleet fleet;
  v1::GenerateRequest request = Explained(60);
  const v1::ChatUnaryResponse drawn = ExpectSameWithTraces(fleet, request);
  for (const v1::SamplingTrace& trace : drawn.choices(0).sampling()) {
    EXPECT_EQ(trace.how(), v1::SamplingTrace::HOW_DRAWN);
    EXPECT_EQ(trace.after_constraint(), trace.vocabulary());
    EXPECT_EQ(trace.after_top_k(), 40u);
    EXPECT_GE(trace.likeliest_size(), 10);
  }

  v1::GenerateRequest several = request;
  several.mutable_options()->set_n(2);
  const v1::ChatUnaryResponse two = ExpectSameWithTraces(fleet, several);
  ASSERT_EQ(two.choices_size(), 2);
  for (const v1::AnswerChoice& choice : two.choices()) ASSERT_GT(choice.sampling_size(), 0);
  EXPECT_NE(two.choices(0).sampling(0).uniform(), two.choices(1).sampling(0).uniform());

  v1::GenerateRequest stopped = request;
  const std::string& text = drawn.choices(0).text();
  ASSERT_GT(text.size(), 20u);
  stopped.mutable_stop()->add_stop(text.substr(text.size() / 2, 3));
  EXPECT_EQ(ExpectSameWithTraces(fleet, stopped).choices(0).finished().reason(),
            v1::FINISH_REASON_STOP_STRING);

  request.mutable_sampling()->set_temperature(0);
  const v1::ChatUnaryResponse greedy = ExpectSameWithTraces(fleet, request);
  for (const v1::SamplingTrace& trace : greedy.choices(0).sampling()) {
    EXPECT_EQ(trace.how(), v1::SamplingTrace::HOW_GREEDY);
    EXPECT_EQ(trace.after_temperature(), 1u);
  }
  fleet.ExpectNothingHeld();
}

TEST(ExplainTest, AConstraintShowsInWhatItLeaves) {
  Fleet fleet;
  v1::GenerateRequest request = Explained(40);
  request.mutable_constraint()->set_regex("[A-Z]{2}-\\d{4}(/x)?");
  const v1::ChatUnaryResponse answer = ExpectSameWithTraces(fleet, request);
  ASSERT_GT(answer.choices(0).sampling_size(), 0);
  const v1::SamplingTrace& first = answer.choices(0).sampling(0);
  EXPECT_LT(first.after_constraint(), first.vocabulary());
  EXPECT_GT(first.after_constraint(), 0u);
}

TEST(ExplainTest, TokensThatWereWrittenForTheModelAreForced) {
  Fleet fleet;
  v1::ChatRequest request;
  v1::Message* const message = request.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("What is 27 + 35?");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(1);
  request.mutable_stop()->set_max_tokens(100);
  request.mutable_thinking()->set_enabled(true);
  request.mutable_thinking()->set_budget_tokens(3);
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logits_digest(true);
  const v1::ChatUnaryResponse answer = ExpectSameWithTraces(fleet, request);
  const auto forced = [](const v1::SamplingTrace& trace) {
    return trace.how() == v1::SamplingTrace::HOW_FORCED;
  };
  EXPECT_GT(std::ranges::count_if(answer.choices(0).sampling(), forced), 0) << answer.ShortDebugString();
}

TEST(ExplainTest, DraftedTokensHaveTheTracesOfDrawnOnes) {
  v1::GenerateRequest request = Explained(120);
  std::string text = "A book about the cat and the dog. ";
  for (int line = 0; line < 12; ++line) text += "The cat sat on the mat, and the dog sat beside the cat. ";
  request.set_text(text + "The cat");
  request.mutable_sampling()->set_temperature(0.3f);
  request.mutable_sampling()->clear_repetition_penalty();
  request.mutable_stop()->set_ignore_eos(true);
  const auto traces = [&](const std::string& how) {
    Fleet fleet({.decode_flags = {"--speculation", how}});
    const v1::ChatUnaryResponse answer = ExpectSameWithTraces(fleet, request);
    EXPECT_EQ(answer.choices(0).finished().usage().accepted_tokens() > 0, how != "off");
    std::vector<std::string> told;
    for (const v1::SamplingTrace& trace : answer.choices(0).sampling())
      told.push_back(trace.SerializeAsString());
    return told;
  };
  EXPECT_EQ(traces("off"), traces("ngram"));
}

TEST(ExplainTest, AWorkerThatDiesInTheMiddleChangesNoTrace) {
  Fleet fleet({.prefill = 1, .decode = 2, .decode_flags = {"--speculation", "off"}, .gated = true});
  v1::GenerateRequest request = Explained(40);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_explain(true);
  FoldedAnswer whole = Fold(fleet, request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  ExpectTraces(whole.answer.choices(0));
  fleet.decode_gates().Allow(8);
  FoldedAnswer moved = Fold(fleet, request, 6, [&] { fleet.LoseHeldDecode(SIGKILL); });
  ASSERT_TRUE(moved.status.ok()) << moved.status.error_message();
  EXPECT_EQ(moved.answer.choices(0).finished().relay().migrations(), 1u);
  for (FoldedAnswer* const one : {&whole, &moved}) one->answer.mutable_choices(0)->clear_finished();
  EXPECT_EQ(moved.answer.choices(0).SerializeAsString(), whole.answer.choices(0).SerializeAsString());
}

}  // namespace
}  // namespace baton::e2e
