// The precision of KV that an engine has where none is asked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "engine/engine.h"

namespace baton::engine {
namespace {

using model::WeightPrecision;
using tensor::DType;

struct Case {
  const char* model;  // a folder, from the root of the sources
  WeightPrecision weights = WeightPrecision::kStored;
  DType expected;
  const char* backend = "cpu";
  std::optional<WeightPrecision> draft = {};
  int tp = 1;
};

TEST(KvDtypeTest, FollowsTheMatrices) {
  constexpr const char *kBF16 = "models/baton-tiny", *kF32 = "tests/golden/models/data/llama-mha",
                       *kMixture = "tests/golden/models/data/mixtral";
  for (const Case& c :
       {Case{.model = kBF16, .expected = DType::kBF16},
        Case{.model = kBF16, .weights = WeightPrecision::kF32, .expected = DType::kF32},
        Case{.model = kBF16, .weights = WeightPrecision::kInt4, .expected = DType::kBF16},
        Case{.model = kBF16, .expected = DType::kBF16, .tp = 2},
        Case{.model = kBF16, .expected = DType::kF32, .backend = "reference"},
        Case{.model = kF32, .expected = DType::kF32},
        Case{.model = kF32, .weights = WeightPrecision::kBF16, .expected = DType::kBF16},
        // The weights that a model drafts with say nothing about its own KV.
        Case{.model = kF32, .expected = DType::kF32, .draft = WeightPrecision::kInt4},
        // Routers are float32 in any precision.
        Case{.model = kMixture, .weights = WeightPrecision::kInt8, .expected = DType::kBF16}}) {
    EngineOptions options = {.model_folder = std::string(BATON_SOURCE_DIR) + "/" + c.model,
                             .backend = c.backend,
                             .threads = c.tp,
                             .tp = c.tp,
                             .kv_blocks = 3,
                             .weights = c.weights,
                             .draft_weights = c.draft};
    const std::string what = fmt::format("{} on {}, weights of kind {}, {} ranks", c.model, c.backend,
                                         static_cast<int>(c.weights), c.tp);
    const auto engine = Engine::Load(options);
    ASSERT_TRUE(engine.ok()) << what << ": " << engine.status();
    EXPECT_EQ((*engine)->store().blocks(), 3) << what;
    const kv::KvLayout& layout = (*engine)->store().layout();
    EXPECT_EQ(tensor::Name(layout.key_dtype), tensor::Name(c.expected)) << what;
    EXPECT_EQ(tensor::Name(layout.value_dtype), tensor::Name(c.expected)) << what;
    // Either may be asked for alone.
    options.key_dtype = DType::kI8;
    const auto packed = Engine::Load(options);
    ASSERT_TRUE(packed.ok()) << what << ": " << packed.status();
    EXPECT_EQ((*packed)->store().layout().key_dtype, DType::kI8) << what;
    EXPECT_EQ((*packed)->store().layout().value_dtype, c.expected) << what;
  }
}

}  // namespace
}  // namespace baton::engine
