#include "decode_service/answer_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode_service/answer_text.h"

namespace baton::decode_service {
namespace {

class AnswerGrammarTest : public testing::Test {
 protected:
  AnswerGrammar::Options Options(bool may_think = false, bool asleep = false) {
    return {.tokenizer = tokenizer_,
            .lark = "start: \"ab\" | \"ac\"",
            .may_think = may_think,
            .asleep = asleep,
            .ends = {kEnd},
            .markers = tables_->Find("hermes")};
  }
  void Begin(AnswerGrammar& grammar) {
    grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), masks_);
  }
  TokenId Id(std::string_view text) { return tokenizer_->Encode(text, false)->front(); }
  bool Allowed(AnswerGrammar& grammar, TokenId token) {
    const auto mask = grammar.Mask();
    EXPECT_TRUE(mask.ok()) << mask.status();
    return mask.ok() && text::Allows(*mask, token);
  }

  static constexpr TokenId kEnd{2};
  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*tokenizer_).value();
  std::shared_ptr<const output::MarkerTables> tables_ = std::make_shared<output::MarkerTables>(*tokenizer_);
  const TokenId think_ = TokenId(2044), thought_ = TokenId(2045), call_ = TokenId(2046);
  GrammarThreads masks_{{}};
};

TEST_F(AnswerGrammarTest, TheEndComesWhereTheGrammarIsComplete) {
  AnswerGrammar grammar(Options());
  Begin(grammar);
  EXPECT_TRUE(Allowed(grammar, Id("a")));
  EXPECT_FALSE(Allowed(grammar, kEnd));
  EXPECT_FALSE(Allowed(grammar, Id("b")));
  EXPECT_FALSE(Allowed(grammar, think_));
  grammar.Push(Id("a"), false, false);
  EXPECT_TRUE(Allowed(grammar, Id("b")));
  EXPECT_FALSE(Allowed(grammar, kEnd));
  grammar.Push(Id("b"), false, false);
  EXPECT_TRUE(Allowed(grammar, kEnd));
  EXPECT_FALSE(Allowed(grammar, Id("b")));
}

TEST_F(AnswerGrammarTest, ItSleepsWhileTheModelThinks) {
  AnswerGrammar grammar(Options(/*may_think=*/true));
  Begin(grammar);
  EXPECT_TRUE(Allowed(grammar, think_));
  EXPECT_TRUE(Allowed(grammar, Id("a")));
  grammar.Push(think_, true, true);
  EXPECT_TRUE(Allowed(grammar, Id("z")));
  EXPECT_TRUE(Allowed(grammar, thought_));
  EXPECT_FALSE(Allowed(grammar, kEnd)) << "there is no answer yet";
  EXPECT_FALSE(Allowed(grammar, call_));
  grammar.Push(Id("z"), true, true);
  grammar.Push(thought_, true, false);
  EXPECT_TRUE(Allowed(grammar, Id("a")));
  EXPECT_TRUE(Allowed(grammar, Id("\n")));
  EXPECT_FALSE(Allowed(grammar, Id("z")));
  EXPECT_FALSE(Allowed(grammar, think_)) << "once";
  grammar.Push(Id("\n"), false, false);
  EXPECT_TRUE(Allowed(grammar, Id("a")));
  grammar.Push(Id("a"), false, false);
  EXPECT_FALSE(Allowed(grammar, Id("\n")));
  EXPECT_TRUE(Allowed(grammar, Id("c")));
}

TEST_F(AnswerGrammarTest, TokensThatCameElsewhereCount) {
  for (const bool before : {true, false}) {
    AnswerGrammar grammar(Options(false, /*asleep=*/true));
    if (before) Begin(grammar);
    grammar.Push(Id("z"), true, true);
    grammar.Push(thought_, true, false);
    grammar.Push(Id("a"), false, false);
    if (!before) Begin(grammar);
    EXPECT_TRUE(Allowed(grammar, Id("c"))) << before;
    EXPECT_FALSE(Allowed(grammar, Id("a"))) << before;
  }
}

TEST_F(AnswerGrammarTest, ATokenThatDoesNotObeyIsAnError) {
  AnswerGrammar grammar(Options());
  Begin(grammar);
  grammar.Push(Id("z"), false, false);
  EXPECT_TRUE(absl::IsInvalidArgument(grammar.Mask().status()));
}

TEST_F(AnswerGrammarTest, RefusesWhatCouldNotEnd) {
  AnswerGrammar::Options endless = Options();
  EXPECT_TRUE(AnswerGrammar::Check(endless, true).ok());
  endless.ends.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerGrammar::Check(endless, false)));
  AnswerGrammar::Options spelled = Options();
  spelled.markers = tables_->Find("mistral");
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerGrammar::Check(spelled, true)));
  EXPECT_TRUE(AnswerGrammar::Check(spelled, false).ok());
}

TEST_F(AnswerGrammarTest, WithChannelsItIsAwakeInThinking) {
  AnswerGrammar::Options options = Options();
  options.markers = tables_->Find("harmony");
  AnswerGrammar grammar(options);
  Begin(grammar);
  grammar.Push(Id("a"), /*thinking=*/true, /*asleep=*/true);
  EXPECT_TRUE(Allowed(grammar, Id("b")));
  EXPECT_FALSE(Allowed(grammar, Id("z")));
}

// Whoever asks for a mask that is not there is told when it is, and nobody else.
TEST_F(AnswerGrammarTest, AMaskThatIsAskedForTooEarlyIsTold) {
  int told = 0;
  GrammarThreads pool({.swift = 0, .slow = 0, .ready = [&] { ++told; }});
  AnswerGrammar grammar(Options());
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool);
  absl::Duration patience = absl::Hours(1);
  EXPECT_FALSE(grammar.Ready(patience)) << "and it does not wait for threads that are not there";
  EXPECT_TRUE(pool.RunOne());
  EXPECT_FALSE(pool.RunOne());
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(grammar.Ready(patience));
  EXPECT_TRUE(Allowed(grammar, Id("a")));
  grammar.Push(Id("a"), false, false);
  EXPECT_TRUE(pool.RunOne());
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(grammar.Ready(patience));
  EXPECT_TRUE(Allowed(grammar, Id("c")));
}

// Tokens that no draw decided come while the mask before them is computed.
TEST_F(AnswerGrammarTest, TokensThatCameMeanwhileAreTakenWhenTheMaskIsAskedFor) {
  GrammarThreads pool({.swift = 0, .slow = 0});
  AnswerGrammar grammar(Options());
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool);
  grammar.Push(Id("a"), false, false);
  absl::Duration patience;
  EXPECT_TRUE(pool.RunOne());
  EXPECT_FALSE(grammar.Ready(patience));
  EXPECT_TRUE(pool.RunOne());
  EXPECT_TRUE(grammar.Ready(patience));
  EXPECT_TRUE(Allowed(grammar, Id("b")));
}

TEST_F(AnswerGrammarTest, NothingIsComputedForAnAnswerThatIsGone) {
  GrammarThreads pool({.swift = 0, .slow = 0});
  std::weak_ptr<const text::GrammarVocabulary> held;
  {
    AnswerGrammar grammar(Options());
    auto vocabulary = text::GrammarVocabulary::Make(*tokenizer_).value();
    held = vocabulary;
    grammar.Begin(vocabulary, vocabulary->Compile(grammar.lark()).value(), pool);
  }
  EXPECT_TRUE(held.expired());
  EXPECT_TRUE(pool.RunOne()) << "it is taken from the lane, and does nothing";
}

TEST_F(AnswerGrammarTest, APoolThatHasStoppedLeavesTheWorkToWhoeverAsks) {
  GrammarThreads pool({});
  pool.Stop();
  AnswerGrammar grammar(Options());
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool);
  EXPECT_TRUE(Allowed(grammar, Id("a")));
}

// Masks take `cost` each, by the clock that they are charged by.
class AnswerGrammarBudgetTest : public AnswerGrammarTest {
 protected:
  // Pushes at most `most` tokens, each with its mask, and returns how many were pushed before an error.
  int PushUntilAnError(AnswerGrammar& grammar, int most) {
    for (int pushed = 0; pushed < most; ++pushed) {
      while (pool_.RunOne()) {
      }
      if (error_ = grammar.Mask().status(); !error_.ok()) return pushed;
      grammar.Push(Id("a"), false, false);
    }
    return most;
  }

  absl::Duration cost_, now_;
  // It is asked before each piece of work and behind it.
  GrammarThreads pool_{{.swift = 0, .slow = 0, .cpu_time = [this, asked = 0]() mutable {
                          if (asked++ % 2 == 1) now_ += cost_;
                          return now_;
                        }}};
  absl::Status error_;
};

TEST_F(AnswerGrammarBudgetTest, AnAnswerThatStaysBeyondItsBudgetEndsWithTheNameOfItsGrammar) {
  AnswerGrammar::Options options = Options();
  options.lark = "start: \"a\"*\n// " + std::string(100, 'x');
  AnswerGrammar grammar(options);
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool_);
  cost_ = absl::Milliseconds(25);
  // 20 ms a token beyond the budget, and 2 s are allowed.
  EXPECT_EQ(PushUntilAnError(grammar, 200), 100);
  EXPECT_TRUE(absl::IsInvalidArgument(error_)) << error_;
  EXPECT_THAT(error_.message(), testing::HasSubstr(R"(which begins "start: "a"* // xxx)"));
  EXPECT_THAT(error_.message(), testing::HasSubstr("more work than is allowed: 2.0 s of a core beyond 5 ms"));
  EXPECT_THAT(error_.message(), testing::HasSubstr("fewer alternatives"));
  EXPECT_LT(error_.message().size(), 400u);
}

TEST_F(AnswerGrammarBudgetTest, AnAnswerWithinItsBudgetGoesOn) {
  AnswerGrammar::Options options = Options();
  options.lark = "start: \"a\"*";
  AnswerGrammar grammar(options);
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool_);
  cost_ = absl::Milliseconds(5);
  EXPECT_EQ(PushUntilAnError(grammar, 1000), 1000) << error_;
  // Some dear masks among cheap ones.
  for (int i = 0; i < 5; ++i) {
    cost_ = absl::Milliseconds(45);
    EXPECT_EQ(PushUntilAnError(grammar, 40), 40) << error_;
    cost_ = absl::Milliseconds(1);
    EXPECT_EQ(PushUntilAnError(grammar, 400), 400) << error_;
  }
}

// The same answer goes on with drafts that would end beyond its budget if the search were charged to it. The
// clock is asked a third time behind a search, and each takes 25 ms.
TEST_F(AnswerGrammarBudgetTest, ASearchForForcedTextIsNotOfTheBudget) {
  AnswerGrammar::Options options = Options();
  options.lark = "start: \"" + std::string(150, 'a') + "\"";
  int asked = 0;
  GrammarThreads pool({.swift = 0, .slow = 0, .cpu_time = [&] {
                         if (asked++ % 3 == 2) now_ += absl::Milliseconds(25);
                         return now_;
                       }});
  AnswerGrammar grammar(options);
  grammar.LookForForced();
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool);
  int pieces = 0;
  for (int pushed = 0; pushed < 120; ++pushed) {
    while (pool.RunOne()) ++pieces;
    ASSERT_TRUE(grammar.Mask().ok()) << pushed;
    grammar.Push(Id("a"), false, false);
  }
  EXPECT_EQ(asked - 2 * pieces, 80) << "it is looked for during two seconds in all";
}

// An answer that moved here comes with many tokens at once.
TEST_F(AnswerGrammarBudgetTest, TokensThatCameElsewhereHaveTheirBudget) {
  AnswerGrammar::Options options = Options();
  options.lark = "start: \"a\"*";
  AnswerGrammar grammar(options);
  for (int i = 0; i < 1000; ++i) grammar.Push(Id("a"), false, false);
  cost_ = absl::Seconds(4);
  grammar.Begin(vocabulary_, vocabulary_->Compile(grammar.lark()).value(), pool_);
  EXPECT_EQ(PushUntilAnError(grammar, 1), 1) << error_;
}

}  // namespace
}  // namespace baton::decode_service
