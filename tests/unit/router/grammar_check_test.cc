#include "router/api/grammar_check.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace baton::router {
namespace {

using Effort = GrammarCheck::Effort;

class GrammarCheckTest : public testing::Test {
 protected:
  bool Knows(const std::string& lark) const {
    return !GrammarCheck::IsNew(check_.Compiles(lark, Effort::kLookUp));
  }
  absl::Status Compile(const std::string& lark) const { return check_.Compiles(lark, Effort::kCompile); }

  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  GrammarCheck check_{*tokenizer_, /*kept=*/2};
  const std::string a_ = "start: \"a\"", b_ = "start: \"b\"", c_ = "start: \"c\"", wrong_ = "start: nothing";
};

TEST_F(GrammarCheckTest, TheVerdictThatWasAskedForLongestAgoGoes) {
  EXPECT_FALSE(Knows(a_));
  EXPECT_TRUE(Compile(a_).ok() && Compile(b_).ok());
  EXPECT_TRUE(Knows(a_));
  EXPECT_TRUE(Compile(c_).ok());
  EXPECT_FALSE(Knows(b_));
  EXPECT_TRUE(Knows(a_) && Knows(c_));
}

TEST_F(GrammarCheckTest, ARefusalIsKeptToo) {
  const absl::Status refused = Compile(wrong_);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(check_.Compiles(wrong_, Effort::kLookUp), refused);
}

// Its text would take more memory than the work that it spares is worth.
TEST_F(GrammarCheckTest, AGrammarThatIsTooLargeIsNotKept) {
  const std::string large = a_ + "\n// " + std::string(text::GrammarVocabulary::kMaxGrammarBytes, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(Compile(large)));
  EXPECT_FALSE(Knows(large));
}

}  // namespace
}  // namespace baton::router
