#include "engine/model/column_exponents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "engine/model/measure_columns.h"
#include "engine/model/weights.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

absl::StatusOr<ColumnExponents> MeasureOf(const std::string& folder, const kernels::CpuOptions& options) {
  return MeasureColumns(folder, **kernels::MakeCpuKernels(options));
}

TEST(ColumnExponentsTest, AreAQuarterOfTheLogarithmOfTheRoot) {
  for (int power = -59; power <= 59; ++power) {
    for (const float of_square : {1.0f, 1.5f, 1.999f}) {
      const int expected = static_cast<int>(std::floor((power + 4) / 8.0));
      EXPECT_EQ(ExponentOf(std::ldexp(of_square, power)), expected) << power;
    }
  }
  EXPECT_EQ(ExponentOf(0), -7);
  EXPECT_EQ(ExponentOf(1e-44f), -7);
  EXPECT_EQ(ExponentOf(3e38f), 8);
  EXPECT_EQ(ExponentOf(std::numeric_limits<float>::infinity()), 8);
}

TEST(ColumnExponentsTest, AreTheSameWhateverTheThreadsAndTheInstructionSet) {
  for (const char* model : {"llama-gqa-tied", "qwen3-window", "olmo2", "smollm3", "phi3-long", "granite"}) {
    const ModelFolder folder(model);
    std::set<std::string> digests;
    for (const char* isa : {"avx2", "avx512"}) {
      for (const int threads : {1, 3}) {
        const kernels::CpuOptions options = {.threads = threads, .isa = isa};
        if (!kernels::MakeCpuKernels(options).ok()) continue;
        const auto measured = MeasureOf(folder.path(), options);
        ASSERT_TRUE(measured.ok()) << model << ": " << measured.status();
        digests.insert(measured->Digest());
      }
    }
    EXPECT_LE(digests.size(), 1u) << model;
  }
}

TEST(ColumnExponentsTest, LargeColumnsOfANormStandOut) {
  const ModelFolder folder("llama-mha");
  const auto before = MeasureOf(folder.path(), {.threads = 1});
  ASSERT_TRUE(before.ok()) << before.status();
  folder.EditTensors([](nlohmann::json& header, std::string& data) {
    const auto& norm = header["model.layers.0.input_layernorm.weight"];
    ASSERT_EQ(norm["dtype"], "F32");
    char* const at = data.data() + norm["data_offsets"][0].get<size_t>() + 5 * sizeof(float);
    float value;
    std::memcpy(&value, at, sizeof value);
    value *= 4096;
    std::memcpy(at, &value, sizeof value);
  });
  const auto after = MeasureOf(folder.path(), {.threads = 1});
  ASSERT_TRUE(after.ok()) << after.status();
  const std::string self = "model.layers.0.self_attn.";
  for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight"}) {
    const int8_t *was = before->Of(self + name), *is = after->Of(self + name);
    ASSERT_TRUE(was != nullptr && is != nullptr) << name;
    EXPECT_EQ(is[5], was[5] + 3) << name;
    EXPECT_EQ(is[4], was[4]) << name;
  }
  EXPECT_EQ(after->Of("model.embed_tokens.weight"), nullptr) << "its rows are looked up";
  EXPECT_NE(after->Of("lm_head.weight"), nullptr);
  EXPECT_NE(before->Digest(), after->Digest());
  EXPECT_TRUE(ColumnExponents().Digest().empty());
}

TEST(ColumnExponentsTest, ArePartOfWhatWeightsAre) {
  const ModelFolder folder("llama-mha");
  const auto checkpoint = *Checkpoint::Open(folder.path());
  Quantizer plain(WeightPrecision::kInt8, 1), transformed(WeightPrecision::kInt8, 1),
      scaled(WeightPrecision::kInt8, 1);
  transformed.TransformColumns();
  scaled.TransformColumns(*MeasureOf(folder.path(), {.threads = 1}));
  const std::set<std::string> digests = {WeightsDigest(checkpoint, {}, true, plain),
                                         WeightsDigest(checkpoint, {}, true, transformed),
                                         WeightsDigest(checkpoint, {}, true, scaled)};
  EXPECT_EQ(digests.size(), 3u);
  EXPECT_EQ(WeightsDigest(checkpoint, {}, false, scaled), WeightsDigest(checkpoint, {}, false, plain));
}

TEST(ColumnExponentsTest, MixturesAndFoldersOfIntegersHaveNone) {
  EXPECT_TRUE(MeasureOf(ModelFolder("mixtral").path(), {.threads = 1})->Digest().empty());
  const ModelFolder folder("llama-mha");
  folder.EditConfig([](nlohmann::json& config) {
    config["quantization_config"] = {
        {"quant_method", "awq"}, {"bits", 4}, {"group_size", 16}, {"version", "gemm"}};
  });
  const auto measured = MeasureOf(folder.path(), {.threads = 1});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_TRUE(measured->Digest().empty());
}

TEST(ColumnExponentsTest, AMissingTensorIsNamed) {
  const ModelFolder folder("llama-mha");
  folder.EditTensors([](nlohmann::json& header, std::string&) {
    header["elsewhere"] = header["model.layers.1.mlp.up_proj.weight"];
    header.erase("model.layers.1.mlp.up_proj.weight");
  });
  const auto measured = MeasureOf(folder.path(), {.threads = 1});
  EXPECT_TRUE(absl::IsInvalidArgument(measured.status()));
  EXPECT_THAT(std::string(measured.status().message()),
              testing::HasSubstr("model.layers.1.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace baton::model
