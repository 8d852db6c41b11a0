#include "lab/eval/precision_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "cli/text/text_windows.h"
#include "lab/eval/precision_report.h"
#include "text/tokenizer.h"

namespace baton::lab {
namespace {

using model::WeightPrecision;
using tensor::DType;
using testing::HasSubstr;
using testing::Not;

const std::string kTinyModel = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";

class PrecisionEvalTest : public testing::Test {
 protected:
  ~PrecisionEvalTest() override { std::filesystem::remove(path_); }

  // A file with the text.
  const std::string& File(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    return path_;
  }
  std::vector<std::vector<TokenId>> Windows(int64_t most = 100) {
    return cli::ReadWindows(kTinyModel, kTinyModel + "/eval/recall.jsonl", 2048, most).value();
  }
  static PrecisionEvalOptions Options(double max_kl) {
    PrecisionEvalOptions options;
    options.engine.model_folder = kTinyModel;
    options.engine.threads = 1;
    options.max_kl = max_kl;
    options.repetitions = 1;
    return options;
  }
  static const MeasuredPrecision& Row(const PrecisionEval& eval, const Precision& precision) {
    const auto row = std::ranges::find(eval.measured, precision, &MeasuredPrecision::precision);
    EXPECT_NE(row, eval.measured.end());
    return *row;
  }

  const std::string path_ = testing::TempDir() + "/precision_eval.txt";
};

TEST_F(PrecisionEvalTest, TextBecomesWindows) {
  std::string text;
  for (int i = 0; i < 80; ++i) text += "the number " + std::to_string(i) + " is kept. ";
  const auto tokens =
      text::Tokenizer::Load(kTinyModel).value()->Encode(text, /*add_special_tokens=*/false).value();
  const auto windows = cli::ReadWindows(kTinyModel, File(text), 100, 250);
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->size(), 3u);
  std::vector<TokenId> joined;
  for (const auto& window : *windows) {
    EXPECT_LE(window.size(), 100u);
    EXPECT_EQ(window.front(), TokenId(1)) << "the token that begins texts";
    joined.insert(joined.end(), window.begin() + 1, window.end());
  }
  EXPECT_EQ(joined, std::vector<TokenId>(tokens.begin(), tokens.begin() + 250));

  // The file is read as far as it is wanted, and no character is cut.
  std::string long_text(70, 'x');
  while (long_text.size() < 70 * 64 + 1) long_text += "\u20ac";
  for (const int64_t most : {64, 65, 66, 70}) {
    const auto begun = cli::ReadWindows(kTinyModel, File(long_text), 100, most);
    ASSERT_TRUE(begun.ok()) << begun.status();
    EXPECT_LE(begun->front().size() + begun->back().size(), static_cast<size_t>(2 * most + 2));
  }
  EXPECT_THAT(std::string(cli::ReadWindows(kTinyModel, File(text), 1, 250).status().message()),
              HasSubstr("use a --window of 2 at least"));

  const auto little = cli::ReadWindows(kTinyModel, File("A few words."), 100, 250);
  EXPECT_EQ(little.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(little.status().message()), HasSubstr(path_));
  EXPECT_FALSE(cli::ReadWindows(kTinyModel, "/nowhere", 100, 250).ok());
}

TEST_F(PrecisionEvalTest, MeasuresEveryPrecisionAndRecommendsTheSmallestWithinTheLimit) {
  const auto exact = EvaluatePrecisions(Windows(), Options(0));
  ASSERT_TRUE(exact.ok()) << exact.status();
  const MeasuredPrecision& stored = exact->measured.front();
  EXPECT_EQ(stored.precision, Precision());
  EXPECT_EQ(stored.distance.positions, 100);
  EXPECT_EQ(stored.distance.mean, 0);
  EXPECT_GT(stored.prompt_rate, 0);
  EXPECT_GT(stored.single_rate, 0);
  EXPECT_GT(stored.batch_rate, 0);
  EXPECT_EQ(stored.kv_token_bytes, 6 * 2 * 2 * 64 * 4);
  EXPECT_EQ(Row(*exact, {.weights = WeightPrecision::kBF16}).not_measured, "the same as stored");
  for (const Precision& precision :
       {Precision{.weights = WeightPrecision::kF32}, Precision{.weights = WeightPrecision::kInt8},
        Precision{.weights = WeightPrecision::kInt4}, Precision{.keys = DType::kBF16, .values = DType::kBF16},
        Precision{.keys = DType::kI8, .values = DType::kI8},
        Precision{.keys = DType::kI8, .values = DType::kI4},
        Precision{.keys = DType::kI4, .values = DType::kI4}}) {
    const MeasuredPrecision& row = Row(*exact, precision);
    EXPECT_EQ(row.not_measured, "");
    EXPECT_GT(row.distance.mean, 0) << model::Name(precision.weights) << " " << KvName(precision);
    EXPECT_EQ(row.distance.perplexity_reference, stored.distance.perplexity_reference);
  }
  EXPECT_LT(Row(*exact, {.weights = WeightPrecision::kInt8}).weight_bytes, stored.weight_bytes);
  EXPECT_LT(Row(*exact, {.keys = DType::kI4, .values = DType::kI4}).kv_token_bytes,
            stored.kv_token_bytes / 4);
  ASSERT_TRUE(exact->recommended.has_value());
  EXPECT_EQ(exact->measured[*exact->recommended].precision, Precision()) << "nothing else loses nothing";

  const auto any = EvaluatePrecisions(Windows(), Options(100));
  ASSERT_TRUE(any.ok()) << any.status();
  ASSERT_TRUE(any->recommended.has_value());
  const MeasuredPrecision& smallest = any->measured[*any->recommended];
  EXPECT_EQ(smallest.precision,
            (Precision{.weights = WeightPrecision::kInt4, .keys = DType::kI4, .values = DType::kI4}));
  EXPECT_GT(smallest.distance.mean, 0) << "it is measured, not added up";
  EXPECT_EQ(any->measured.size(), exact->measured.size() + 1);

  // Between them: within the limit, and nothing smaller that was measured is.
  const double limit = Row(*exact, {.weights = WeightPrecision::kInt8}).distance.mean * 1.5;
  const auto some = EvaluatePrecisions(Windows(), Options(limit));
  ASSERT_TRUE(some.ok() && some->recommended.has_value());
  const MeasuredPrecision& chosen = some->measured[*some->recommended];
  EXPECT_LE(chosen.distance.mean, limit);
  EXPECT_LE(chosen.bytes(), Row(*some, {.weights = WeightPrecision::kInt8}).bytes());
  for (const MeasuredPrecision& row : some->measured) {
    if (!row.not_measured.empty() || row.bytes() >= chosen.bytes()) continue;
    EXPECT_GT(row.distance.mean, limit) << model::Name(row.precision.weights) << " " << KvName(row.precision);
  }
}

TEST_F(PrecisionEvalTest, RefusesTokensThatTheModelDoesNotHave) {
  std::vector<std::vector<TokenId>> windows = Windows();
  windows.back()[5] = TokenId(2048);
  const auto beyond = EvaluatePrecisions(windows, Options(1));
  EXPECT_EQ(beyond.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.status().message()),
              HasSubstr("the token 2048, and the model's vocabulary is 2048"));
}

TEST_F(PrecisionEvalTest, AnotherModelMayBeTheReference) {
  PrecisionEvalOptions options = Options(0.01);
  options.reference = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/llama-mha";
  const auto other = EvaluatePrecisions(Windows(), options);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("vocabulary"));
  options.reference = "/nowhere";
  EXPECT_FALSE(EvaluatePrecisions(Windows(), options).ok());
}

TEST_F(PrecisionEvalTest, ReportsSayWhatWasMeasured) {
  PrecisionEval eval;
  MeasuredPrecision row{
      .precision = {.weights = WeightPrecision::kInt8, .keys = DType::kI8, .values = DType::kI4}};
  row.distance = {.positions = 2000,
                  .mean = 0.00897,
                  .p99 = 0.03998,
                  .largest = 0.5,
                  .perplexity_reference = 50,
                  .perplexity = 50.45,
                  .same_choice = 0.933};
  row.weight_bytes = int64_t{129} << 20;
  row.kv_token_bytes = 9216;
  row.prompt_rate = 1947;
  eval.measured = {row,
                   {.precision = {.weights = WeightPrecision::kBF16}, .not_measured = "the same as stored"}};
  bench::Provenance provenance;
  provenance.model = "small";
  const PrecisionReport report = {.eval = eval,
                                  .provenance = provenance,
                                  .reference = "large",
                                  .text = "code.txt",
                                  .threads = 2,
                                  .max_kl = 0.01};
  EXPECT_THAT(RenderPrecisions(report), HasSubstr("None has a mean KL divergence of at most 0.01"));
  EXPECT_TRUE(PrecisionsToJson(report)["recommended"].is_null());
  eval.recommended = 0;
  const std::string text = RenderPrecisions(report);
  for (const char* part : {"small, compared with large", "perplexity 50.00", "2,000 positions of code.txt",
                           "129 MiB", "9 KiB", "1947", "0.00897", "0.03998", "6.7%", "+0.9%",
                           "the same as stored", "--weights int8 --key-dtype i8 --value-dtype i4"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const nlohmann::ordered_json json = PrecisionsToJson(report);
  EXPECT_EQ(json["recommended"]["value_dtype"], "i4");
  EXPECT_EQ(json["measured"][0]["kl_p99"], 0.03998);
  EXPECT_EQ(json["measured"][0]["decode_tokens_per_second"]["batch_8"], 0);
  EXPECT_EQ(json["measured"][1]["not_measured"], "the same as stored");
  EXPECT_FALSE(json["measured"][1].contains("kl_mean"));
}

}  // namespace
}  // namespace baton::lab
