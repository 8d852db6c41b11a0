#include "common/model/summary.h"

#include <gtest/gtest.h>

#include "tests/unit/model/model_folder.h"

namespace baton::model {
namespace {

TEST(ModelSummaryTest, AgreesWithTheFiles) {
  for (const char* name :
       {"llama-mha", "llama-gqa-tied", "llama-bias", "llama-sharded", "qwen2", "qwen3-window"}) {
    SCOPED_TRACE(name);
    const ModelFolder folder(name);
    const auto summary = ModelSummary::Load(folder.path());
    ASSERT_TRUE(summary.ok()) << summary.status();
    int64_t stored = 0;
    for (const auto& [dtype, values] : summary->values_by_dtype) stored += values;
    EXPECT_EQ(summary->parameters, stored);
    EXPECT_EQ(summary->weight_bytes, stored * (std::string(name) == "llama-mha" ? 4 : 2));
  }
}

TEST(ModelSummaryTest, CountsKvBytesOfEachPrecision) {
  const ModelFolder folder("llama-gqa-tied");  // 2 layers, 2 KV heads of 8, context 256
  const auto summary = ModelSummary::Load(folder.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  using tensor::DType;
  EXPECT_EQ(summary->KvBytesPerToken(DType::kF32, DType::kF32), 2 * 2 * 2 * 8 * 4);
  EXPECT_EQ(summary->KvBytesPerToken(DType::kBF16, DType::kBF16), 2 * 2 * 2 * 8 * 2);
  EXPECT_EQ(summary->KvBytesPerToken(DType::kF32, DType::kBF16), 2 * 2 * 8 * (4 + 2));
  EXPECT_EQ(summary->KvBytesOfContext(DType::kF32, DType::kBF16), 256 * 2 * 2 * 8 * (4 + 2));
  EXPECT_EQ(summary->rope_bytes, 256 * 4 * 2 * 4);
}

}  // namespace
}  // namespace baton::model
