// Pruning by REAP against an independent implementation (make_reap.py: NumPy over transformers): scores, the
// experts that are left, losses, and logits of the pruned folder as transformers computes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/model/decoder.h"
#include "engine/model/expert_scores.h"
#include "engine/model/pruned_folder.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class ReapGoldenTest : public testing::Test {
 protected:
  ReapGoldenTest() { std::filesystem::remove_all(target_); }
  ~ReapGoldenTest() override { std::filesystem::remove_all(target_); }

  static std::string DataFolder() { return std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/"; }
  static std::vector<TokenId> TokensOf(const Json& ids) {
    std::vector<TokenId> tokens;
    for (const int32_t id : ids) tokens.emplace_back(id);
    return tokens;
  }
  absl::StatusOr<Pruned> Prune(const std::string& model, const Json& golden, double keep) {
    const std::vector<TokenId> calibration = TokensOf(golden["calibration"]),
                               held_out = TokensOf(golden["held_out"]);
    return PruneExperts({.source = DataFolder() + model,
                         .target = target_,
                         .keep = keep,
                         .calibration = calibration,
                         .held_out = held_out,
                         .calibration_digest = "00",
                         .window = golden["window"],
                         .threads = 2,
                         .precision = WeightPrecision::kF32});
  }

  const Json goldens_ = Json::parse(std::ifstream(DataFolder() + "reap.json"));
  const std::string target_ = testing::TempDir() + "/baton-reap-" + std::to_string(getpid());
};

TEST_F(ReapGoldenTest, ScoresIdsLossesAndLogitsAreTheirs) {
  ASSERT_GE(goldens_.size(), 6u);
  for (const auto& [model, golden] : goldens_.items()) {
    SCOPED_TRACE(model);
    std::filesystem::remove_all(target_);
    const auto pruned = Prune(model, golden, golden["keep"]);
    ASSERT_TRUE(pruned.ok()) << pruned.status();
    EXPECT_NEAR(pruned->loss_before, golden["loss_before"], 1e-5);
    EXPECT_NEAR(pruned->loss_after, golden["loss_after"], 1e-5);
    EXPECT_LT(pruned->parameters_after, pruned->parameters_before);
    const Json report = Json::parse(std::ifstream(target_ + "/prune.json"));
    EXPECT_EQ(report["calibration"]["sha256"], "00");
    ASSERT_EQ(report["layers"].size(), golden["layers"].size());
    for (size_t l = 0; l < report["layers"].size(); ++l) {
      const Json &own = report["layers"][l], &theirs = golden["layers"][l];
      EXPECT_EQ(own["layer"], theirs["layer"]);
      EXPECT_EQ(own["kept"], theirs["kept"]);
      EXPECT_EQ(own["tokens"], theirs["tokens"]);
      ASSERT_EQ(own["scores"].size(), theirs["scores"].size());
      for (size_t e = 0; e < own["scores"].size(); ++e) {
        const double expected = theirs["scores"][e];
        EXPECT_NEAR(own["scores"][e].get<double>(), expected, 1e-5 * expected) << "expert " << e;
      }
    }
    // transformers on the same folder.
    const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
    const auto decoder = Decoder::Load(target_, *kernels, {.precision = WeightPrecision::kF32});
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 4);
    ASSERT_TRUE(store.ok()) << store.status();
    const std::vector<BlockId> blocks = {BlockId(3), BlockId(0), BlockId(1), BlockId(2)};
    const std::vector<TokenId> tokens = TokensOf(golden["held_out"]);
    const int64_t rows = golden["window"];
    const kernels::SequenceRows sequence{.rows = rows, .blocks = blocks};
    const std::vector<int64_t> wanted = {rows - 4, rows - 3, rows - 2, rows - 1};
    std::vector<float> logits(golden["logits"].size());
    (*decoder)->Forward({std::span(tokens).first(static_cast<size_t>(rows)), std::span(&sequence, 1), wanted},
                        *store, logits, [](int) {});
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], golden["logits"][i].get<double>(), 2e-4) << i;
    }
  }
}

TEST_F(ReapGoldenTest, RefusesWhatCanNotBe) {
  const auto message = [&](const std::string& model, double keep) {
    const absl::Status status = Prune(model, goldens_["qwen3-moe"], keep).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(std::filesystem::exists(target_ + "/config.json"));
    return std::string(status.message());
  };
  EXPECT_THAT(message("qwen3", 0.5), HasSubstr("qwen3: has no experts that could be left out"));
  EXPECT_THAT(message("qwen3-moe", 0.99), HasSubstr("of 8 experts none would be left out"));
  EXPECT_THAT(message("qwen3-moe", 0.25),
              HasSubstr("2 experts would be left to choose from, of which a token "
                        "takes 3"));
  EXPECT_THAT(message("glm4-moe", 0.34), HasSubstr("a group would have less than two experts"));
  std::filesystem::create_directories(target_);
  std::ofstream(target_ + "/notes.txt") << "mine";
  EXPECT_EQ(Prune("qwen3-moe", goldens_["qwen3-moe"], 0.75).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(BestExpertsTest, KeepsTheLargestOfEachGroupAndTheLowestAmongEquals) {
  const double scores[] = {3, 1, 2, 2, 5, 0, 5, 5};
  EXPECT_EQ(BestExperts(scores, 4, 1), (std::vector<int>{0, 4, 6, 7}));
  EXPECT_EQ(BestExperts(scores, 5, 1), (std::vector<int>{0, 2, 4, 6, 7}));
  EXPECT_EQ(BestExperts(scores, 4, 2), (std::vector<int>{0, 2, 4, 6}));
}

}  // namespace
}  // namespace baton::model
