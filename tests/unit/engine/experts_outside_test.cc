// An engine whose experts lie in a file, and what does not go together with that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "engine/engine.h"
#include "engine/model/expert_packing.h"

namespace baton::engine {
namespace {

using testing::HasSubstr;

class ExpertsOutsideEngineTest : public testing::Test {
 protected:
  ~ExpertsOutsideEngineTest() override { std::filesystem::remove(file_); }
  std::string Message(const EngineOptions& options) const {
    return std::string(Engine::Load(options).status().message());
  }

  const std::string model_ = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/qwen3-moe";
  const std::string file_ = testing::TempDir() + "/experts-" + std::to_string(getpid());
  EngineOptions options_ = {
      .model_folder = model_, .threads = 2, .kv_bytes = 1 << 20, .weights = model::WeightPrecision::kInt8};
};

TEST_F(ExpertsOutsideEngineTest, TakesLessMemoryAndIsOfTheSameFingerprint) {
  const auto packed =
      model::PackExperts({.folder = model_, .file = file_, .precision = model::WeightPrecision::kInt8});
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto inside = Engine::Load(options_);
  ASSERT_TRUE(inside.ok()) << inside.status();
  options_.expert_file = file_;
  options_.expert_memory = 1 << 20;
  const auto outside = Engine::Load(options_);
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_LT((*outside)->weight_bytes(), (*inside)->weight_bytes());
  EXPECT_EQ((*outside)->fingerprint(), (*inside)->fingerprint());
}

TEST_F(ExpertsOutsideEngineTest, RefusesWhatDoesNotGoTogether) {
  options_.expert_file = file_;
  EXPECT_THAT(Message(options_), HasSubstr("--expert-file and --expert-memory belong together"));
  options_.expert_memory = 1 << 20;
  EXPECT_THAT(Message(options_), HasSubstr("`baton model pack` makes it"));
  options_.draft_weights = model::WeightPrecision::kInt4;
  EXPECT_THAT(Message(options_), HasSubstr("--self-draft keeps all experts in memory"));
  options_.draft_weights.reset();
  options_.tp = 2;
  EXPECT_THAT(Message(options_), HasSubstr("leave out --tp"));
  options_.tp = 1;
  options_.expert_file.clear();
  EXPECT_THAT(Message(options_), HasSubstr("belong together"));
}

}  // namespace
}  // namespace baton::engine
