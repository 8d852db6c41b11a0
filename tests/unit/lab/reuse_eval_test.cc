#include "lab/eval/reuse_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace baton::lab {
namespace {

using testing::HasSubstr;

constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";

TEST(ReuseEvalTest, SaysFindsWordsOfTheirOwn) {
  EXPECT_TRUE(Says("Your number is 70.", "70"));
  EXPECT_TRUE(Says("it is WARM Green", "warm green"));
  EXPECT_FALSE(Says("Your number is 170.", "70"));
  EXPECT_FALSE(Says("", "70"));
}

class QuestionsFileTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<ReuseQuestion>> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadReuseQuestions(path_);
  }
  ~QuestionsFileTest() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "/reuse_questions.jsonl";
};

TEST_F(QuestionsFileTest, ReadsMessagesAndParts) {
  const auto read =
      Read(R"({"messages": [{"role": "user", "parts": [{"text": "A", "reusable": true}, {"text": "B"}]},)"
           R"( {"role": "assistant", "content": "C"}], "expected": "x"})"
           "\n\n");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1u);
  const v1::Conversation& conversation = read->front().conversation;
  EXPECT_TRUE(conversation.messages(0).parts(0).reusable());
  EXPECT_FALSE(conversation.messages(0).parts(1).reusable());
  EXPECT_EQ(conversation.messages(1).content(), "C");
  EXPECT_EQ(read->front().expected, "x");
}

TEST_F(QuestionsFileTest, NamesTheLine) {
  const std::string good = R"({"messages": [{"role": "user", "content": "A"}], "expected": "x"})"
                           "\n";
  for (const std::string bad :
       {"{", "[]", R"({"messages": []})", R"({"expected": "x"})", R"({"messages": [3], "expected": "x"})",
        R"({"messages": [{"parts": 3}], "expected": "x"})"}) {
    const auto read = Read(good + bad);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("line 2"));
  }
  EXPECT_FALSE(Read("").ok());
}

TEST(ReuseEvalTest, MeasuresTheShippedModel) {
  const auto questions = ReadReuseQuestions(std::string(kModel) + "/eval/documents.jsonl");
  ASSERT_TRUE(questions.ok()) << questions.status();
  EXPECT_EQ(questions->size(), 120u);
  ReuseEvalOptions options;
  options.engine.model_folder = kModel;
  options.engine.threads = 1;
  options.engine.kv_bytes = 64 << 20;
  options.most_questions = 2;
  const auto result = EvaluateReuse(*questions, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->gate.measured.questions, 2);
  EXPECT_GT(result->approximate_tokens * 10, result->prompt_tokens * 7);
  EXPECT_GT(result->gate.measured.kl, 0);
  // A question that marks nothing measures nothing.
  v1::Conversation plain;
  plain.add_messages()->set_role("user");
  plain.mutable_messages(0)->set_content("Hi.");
  EXPECT_EQ(EvaluateReuse({{plain, "x"}}, options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::lab
