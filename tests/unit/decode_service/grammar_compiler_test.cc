#include "decode_service/grammar_compiler.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace baton::decode_service {
namespace {

class GrammarCompilerTest : public testing::Test {
 protected:
  static std::string Lark(const std::string& word) { return "start: \"" + word + "\""; }

  // Adds `word` to what was done once its grammar is compiled.
  bool Ask(const std::string& salt, const std::string& word) {
    return compiler_->Compile(salt, Lark(word), [this, word](absl::StatusOr<text::GrammarMatcher> matcher) {
      EXPECT_TRUE(matcher.ok()) << matcher.status();
      did_ += word + " ";
    });
  }
  std::string DoAll() {
    while (compiler_->RunOne()) {
    }
    return std::exchange(did_, "");
  }
  void Restart(GrammarCompiler::Options options) {
    options.threads = false;
    compiler_.emplace(vocabulary_, options);
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*tokenizer_).value();
  std::string did_;
  std::optional<GrammarCompiler> compiler_{
      std::in_place, vocabulary_, GrammarCompiler::Options{.threads = false, .waiting = 256, .kept = 32}};
};

TEST_F(GrammarCompilerTest, WhoeverSendsManyNewGrammarsWaitsForItself) {
  for (const char* const word : {"aa", "ab", "ac", "ad"}) ASSERT_TRUE(Ask("a", word));
  ASSERT_TRUE(Ask("b", "ba"));
  EXPECT_EQ(DoAll(), "aa ba ab ac ad ");
}

TEST_F(GrammarCompilerTest, ATenantCannotTakeAllPlaces) {
  Restart({.waiting = 8});
  int asked = 0;
  while (Ask("a", "a" + std::to_string(asked))) ++asked;
  EXPECT_EQ(asked, 4);
  EXPECT_TRUE(Ask("b", "ba"));
  EXPECT_EQ(DoAll(), "a0 ba a1 a2 a3 ");
}

TEST_F(GrammarCompilerTest, AKeptGrammarWaitsForNoCompilation) {
  ASSERT_TRUE(Ask("a", "kept"));
  DoAll();
  for (const char* const word : {"aa", "ab", "ac"}) ASSERT_TRUE(Ask("a", word));
  ASSERT_TRUE(Ask("a", "kept"));
  EXPECT_EQ(DoAll(), "kept aa ab ac ");
}

// A grammar that is kept goes before one that is new: so it shows which are.
TEST_F(GrammarCompilerTest, TheOneThatWasAskedForLongestAgoGoes) {
  Restart({.kept = 2});
  ASSERT_TRUE(Ask("a", "old") && Ask("a", "older"));
  EXPECT_EQ(DoAll(), "old older ");
  ASSERT_TRUE(Ask("a", "old"));
  EXPECT_EQ(DoAll(), "old ");
  ASSERT_TRUE(Ask("a", "new"));
  EXPECT_EQ(DoAll(), "new ");
  ASSERT_TRUE(Ask("a", "older") && Ask("a", "old") && Ask("a", "new"));
  EXPECT_EQ(DoAll(), "old new older ");
}

TEST_F(GrammarCompilerTest, EachAnswerHasAMatcherOfItsOwn) {
  std::optional<text::GrammarMatcher> first, second;
  const TokenId a = tokenizer_->Encode("a", false)->front();
  for (std::optional<text::GrammarMatcher>* const matcher : {&first, &second}) {
    ASSERT_TRUE(compiler_->Compile("a", Lark("a"), [matcher](absl::StatusOr<text::GrammarMatcher> compiled) {
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      matcher->emplace(*std::move(compiled));
    }));
    DoAll();
    EXPECT_TRUE((*matcher)->Push(a).ok());
    EXPECT_FALSE((*matcher)->Push(a).ok());
  }
}

TEST_F(GrammarCompilerTest, AGrammarThatIsWrongIsToldAndNotKept) {
  for (int i = 0; i < 2; ++i) {
    absl::Status told;
    ASSERT_TRUE(compiler_->Compile("a", "start: nothing", [&](absl::StatusOr<text::GrammarMatcher> matcher) {
      told = matcher.status();
    }));
    DoAll();
    EXPECT_TRUE(absl::IsInvalidArgument(told)) << told;
  }
}

TEST_F(GrammarCompilerTest, WhoeverWaitsWhenItEndsIsAnswered) {
  ASSERT_TRUE(Ask("a", "aa") && Ask("b", "ba"));
  compiler_.reset();
  EXPECT_EQ(did_, "aa ba ");
  std::string done;
  {
    GrammarCompiler threaded(vocabulary_, {});
    ASSERT_TRUE(threaded.Compile("a", Lark("a"), [&](const absl::StatusOr<text::GrammarMatcher>& matcher) {
      EXPECT_TRUE(matcher.ok());
      done = "yes";
    }));
  }
  EXPECT_EQ(done, "yes");
}

}  // namespace
}  // namespace baton::decode_service
