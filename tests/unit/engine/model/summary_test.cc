#include "engine/model/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/decoder.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

TEST(ModelSummaryTest, AgreesWithTheFiles) {
  for (const char* name :
       {"llama-mha", "llama-gqa-tied", "llama-bias", "llama-sharded", "qwen2", "qwen3-window", "qwen3-moe",
        "qwen2-moe", "mixtral", "olmoe", "glm4-moe", "gpt-oss"}) {
    SCOPED_TRACE(name);
    const ModelFolder folder(name);
    const auto summary = ModelSummary::Load(folder.path());
    ASSERT_TRUE(summary.ok()) << summary.status();
    int64_t stored = 0;
    for (const auto& [type, values] : summary->values_by_type) stored += values;
    EXPECT_EQ(summary->parameters, stored);
    const bool wide = std::string(name) == "llama-mha" || std::string(name) == "olmoe";
    EXPECT_EQ(summary->weight_bytes, stored * (wide ? 4 : 2));
  }
}

TEST(ModelSummaryTest, CountsWeightBytesOfEachPrecision) {
  // The backend really holds more by its padding alone: to whole panels of 64 rows, and with bfloat16 to 32
  // columns.
  for (const char* name :
       {"llama-mha", "llama-gqa-tied", "qwen2", "qwen3-moe", "glm4-moe", "gpt-oss", "gpt-oss-mxfp4"}) {
    const ModelFolder folder(name);
    const auto summary = ModelSummary::Load(folder.path());
    ASSERT_TRUE(summary.ok()) << summary.status();
    int64_t before = 0;
    for (const auto& [word, precision] : WeightPrecisions()) {
      SCOPED_TRACE(std::string(name) + " " + word);
      const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
      const auto decoder = Decoder::Load(folder.path(), *kernels, {.precision = precision});
      ASSERT_TRUE(decoder.ok()) << decoder.status();
      const int64_t bytes = summary->WeightBytes(precision);
      EXPECT_LE(bytes, (*decoder)->weight_bytes());
      EXPECT_GT(bytes, (*decoder)->weight_bytes() / 2);
      // From f32 on, which comes after what is stored, each takes less.
      EXPECT_TRUE(before == 0 || (precision == WeightPrecision::kF32 ? bytes >= before : bytes < before));
      before = bytes;
    }
  }
}

TEST(ModelSummaryTest, LoadsIfTheCpuBackendHasAttentionForItsHeads) {
  const ModelFolder odd("llama-heads-of-20"), wide("llama-mha");
  const auto loads = ModelSummary::Load(odd.path());
  ASSERT_TRUE(loads.ok() && loads->loads.ok()) << loads.status();
  EXPECT_EQ(loads->KvBytesPerToken(tensor::DType::kF32, tensor::DType::kF32), 2 * 2 * 2 * 24 * 4);
  wide.EditConfig([](nlohmann::json& config) { config["head_dim"] = 258; });
  const auto refused = ModelSummary::Load(wide.path());
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_THAT(std::string(refused->loads.message()),
              testing::HasSubstr("heads of up to 256 values; this model's have 258"));
}

TEST(ModelSummaryTest, CountsWhatATokenUsesOfExperts) {
  const ModelFolder folder("qwen3-moe");  // 3 of 8 experts of width 24 in 2 layers, hidden 64
  const auto summary = ModelSummary::Load(folder.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  constexpr int64_t kExpert = 3 * 64 * 24;
  EXPECT_EQ(summary->parameters - summary->active_parameters, 2 * 5 * kExpert);
  EXPECT_EQ(summary->BytesPerExpert(WeightPrecision::kStored), 2 * kExpert);
  EXPECT_EQ(summary->BytesPerExpert(WeightPrecision::kInt8), kExpert + 4 * (24 + 24 + 64));
  // The embedding is another matrix than the head: a token reads a row of it.
  EXPECT_EQ(summary->WeightBytes(WeightPrecision::kBF16) - summary->BytesPerToken(WeightPrecision::kBF16),
            2 * (2 * 5 * kExpert + summary->lookup_values));
  EXPECT_EQ(summary->WeightBytes(WeightPrecision::kF32), 4 * summary->parameters);
  EXPECT_EQ(summary->WeightBytes(WeightPrecision::kBF16),
            4 * summary->parameters - 2 * summary->matrix_values);
  // Routers are float32 always, as norms are: two of each layer, those of Q and K, and the last one.
  EXPECT_EQ(summary->parameters - summary->matrix_values, 2 * 8 * 64 + 3 * (2 * 64 + 2 * 32) + 64);
}

TEST(ModelSummaryTest, CountsKvBytesOfEachPrecision) {
  const ModelFolder folder("llama-gqa-tied");  // 2 layers, 2 KV heads of 8, context 256
  const auto summary = ModelSummary::Load(folder.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  using tensor::DType;
  EXPECT_EQ(summary->KvBytesPerToken(DType::kF32, DType::kF32), 2 * 2 * 2 * 8 * 4);
  EXPECT_EQ(summary->KvBytesPerToken(DType::kBF16, DType::kBF16), 2 * 2 * 2 * 8 * 2);
  EXPECT_EQ(summary->KvBytesPerToken(DType::kF32, DType::kBF16), 2 * 2 * 8 * (4 + 2));
  // A scale of 4 bytes for each of the 2 x 2 vectors.
  EXPECT_EQ(summary->KvBytesPerToken(DType::kI8, DType::kI8), 2 * 2 * 2 * (8 + 4));
  EXPECT_EQ(summary->KvBytesPerToken(DType::kI8, DType::kI4), 2 * 2 * ((8 + 4) + (4 + 4)));
  EXPECT_EQ(summary->KvBytesOfContext(DType::kF32, DType::kBF16), 256 * 2 * 2 * 8 * (4 + 2));
  EXPECT_EQ(summary->rope_bytes, 256 * 4 * 2 * 4);
}

// A pool's blocks hold every layer of their tokens, also of layers whose window has passed them.
TEST(ModelSummaryTest, CountsTheKvThatAPoolTakes) {
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  for (const char* name : {"mistral-window", "qwen3-window", "gpt-oss", "llama-mha"}) {
    SCOPED_TRACE(name);
    const ModelFolder folder(name);
    const auto summary = ModelSummary::Load(folder.path());
    const auto decoder = Decoder::Load(folder.path(), *kernels);
    ASSERT_TRUE(summary.ok() && decoder.ok()) << summary.status() << decoder.status();
    const int64_t blocks = BlocksFor(summary->config.context);
    const auto store =
        kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kBF16), blocks);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(summary->KvBytesOfContext(tensor::DType::kF32, tensor::DType::kBF16),
              store->blocks() * store->layout().block_bytes());
  }
}

}  // namespace
}  // namespace baton::model
