// Mixtures of experts in a whole model: over ranks, in other precisions, and what their observer is told.
// (Bits under any schedule are DecoderNumbersTest's, logits the golden tests'.)
#include "engine/model/expert_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "engine/kernels/collective.h"
#include "engine/model/decoder.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

std::string GoldenFolder(const std::string& name) {
  return std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/" + name;
}

// The prompt in two chunks and three steps: all logits, one row after the other.
std::vector<float> AllLogits(const std::string& folder, kernels::Kernels& kernels, kernels::Collective* group,
                             WeightPrecision precision, std::span<float> shared = {},
                             ExpertObserver* observer = nullptr) {
  const auto loaded = Decoder::LoadShard(folder, kernels, group, {.precision = precision});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  Decoder& decoder = **loaded;
  decoder.Observe(observer);
  auto store = kv::KvStore::Create(decoder.LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 4);
  EXPECT_TRUE(store.ok()) << store.status();
  const std::vector<BlockId> blocks = {BlockId(2), BlockId(0), BlockId(3)};
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.emplace_back((i * 37 + 5) % 150);
  std::vector<float> own(static_cast<size_t>(40 * decoder.config().vocabulary));
  const std::span<float> logits = shared.empty() ? std::span<float>(own) : shared;
  for (int64_t first = 0; first < 40;) {
    const int64_t rows = first < 37 ? (first == 0 ? 20 : 17) : 1;
    const kernels::SequenceRows sequence{.rows = rows, .first_position = first, .blocks = blocks};
    std::vector<int64_t> wanted;
    for (int64_t r = 0; r < rows; ++r) wanted.push_back(r);
    decoder.Forward({std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                     std::span(&sequence, 1), wanted},
                    *store,
                    logits.subspan(static_cast<size_t>(first * decoder.config().vocabulary),
                                   static_cast<size_t>(rows * decoder.config().vocabulary)),
                    [](int) {});
    first += rows;
  }
  return own;
}

// Each rank computes its columns of the same logits.
std::vector<float> OverRanks(const std::string& folder, int ranks, WeightPrecision precision) {
  std::vector<float> logits(40 * 150);
  const auto group = kernels::MakeInProcessGroup(ranks);
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto kernels = *kernels::MakeCpuKernels({.threads = 1 + r});
      AllLogits(folder, *kernels, group[static_cast<size_t>(r)].get(), precision, logits);
    });
  }
  threads.clear();
  return logits;
}

TEST(ExpertRanksTest, ExpertsSplitByWidthGiveTheBitsOfOneRankWhereSumsAreExact) {
  for (const char* model : {"qwen3-moe", "qwen2-moe", "glm4-moe", "mixtral", "gpt-oss", "gpt-oss-mxfp4"}) {
    for (const WeightPrecision precision :
         {WeightPrecision::kF32, WeightPrecision::kInt8, WeightPrecision::kInt4}) {
      SCOPED_TRACE(std::string(model) + " " + std::string(Name(precision)));
      const auto kernels = *kernels::MakeCpuKernels({.threads = 2});
      const std::vector<float> one = AllLogits(GoldenFolder(model), *kernels, nullptr, precision);
      const std::vector<float> two = OverRanks(GoldenFolder(model), 2, precision);
      ASSERT_EQ(one.size(), two.size());
      if (precision == WeightPrecision::kF32) {
        for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], two[i], 2e-4) << i;
      } else {
        ASSERT_EQ(one, two);
      }
    }
  }
}

TEST(ExpertRanksTest, RefusesRanksThatCanNotBe) {
  const auto message = [](const char* model, int ranks) {
    const auto config = ModelConfig::Load(GoldenFolder(model));
    EXPECT_TRUE(config.ok()) << config.status();
    return std::string(CheckDivides(*config, ranks).message());
  };
  EXPECT_EQ(message("olmoe", 1), "");
  EXPECT_THAT(message("olmoe", 2), HasSubstr("norms all heads together, which runs on one rank only"));
  EXPECT_THAT(message("qwen2-moe", 3),
              HasSubstr("an intermediate size of 80 and experts of 24 and a shared expert of 40, which can "
                        "be split over 1, 2 ranks"));
}

TEST(ExpertPrecisionTest, RoutersStayAsTheyAreStored) {
  for (const char* name :
       {"model.layers.3.mlp.gate.weight", "model.layers.3.block_sparse_moe.gate.weight",
        "model.layers.3.mlp.shared_expert_gate.weight", "model.layers.3.mlp.router.weight"}) {
    for (const WeightPrecision precision :
         {WeightPrecision::kF32, WeightPrecision::kBF16, WeightPrecision::kInt8, WeightPrecision::kInt4}) {
      EXPECT_EQ(PrecisionFor(precision, name), WeightPrecision::kStored) << name;
    }
  }
  EXPECT_EQ(PrecisionFor(WeightPrecision::kInt4, "model.layers.3.mlp.experts.0.gate_proj.weight"),
            WeightPrecision::kInt4);
}

class CountingObserver final : public ExpertObserver {
 public:
  void Chose(int layer, const kernels::Choices& choices, std::span<const double> norms) override {
    for (int64_t r = 0; r < choices.rows; ++r) {
      for (size_t k = 0; k < choices.row(r).size(); ++k) {
        ++chosen[layer];
        EXPECT_GT(norms[static_cast<size_t>(r) * choices.row(r).size() + k], 0);
      }
    }
  }
  std::map<int, int64_t> chosen;
};

TEST(ExpertObserverTest, IsToldOfEveryRowOfEveryMixtureAndChangesNothing) {
  const auto kernels = *kernels::MakeCpuKernels({.threads = 2});
  CountingObserver observer;
  const auto seen =
      AllLogits(GoldenFolder("qwen3-moe"), *kernels, nullptr, WeightPrecision::kStored, {}, &observer);
  EXPECT_EQ(seen, AllLogits(GoldenFolder("qwen3-moe"), *kernels, nullptr, WeightPrecision::kStored));
  // Layer 1 is dense.
  EXPECT_EQ(observer.chosen, (std::map<int, int64_t>{{0, 40 * 3}, {2, 40 * 3}}));
}

// A backend that runs dense models alone.
TEST(ExpertRefusalTest, ABackendWithoutExpertsSaysSoAtLoad) {
  class DenseKernels final : public kernels::Kernels {
   public:
    std::string_view name() const override { return "dense"; }
    std::string numerics() const override { return "dense/1"; }
    absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Pack(
        std::span<const kernels::WeightView>) override {
      return absl::InternalError("was asked to pack");
    }
    void Embed(const kernels::PackedMatrix&, std::span<const TokenId>, int64_t, kernels::Matrix) override {}
    void GatherRows(kernels::Matrix, std::span<const int64_t>, kernels::Matrix) override {}
    void RmsNorm(kernels::Matrix, std::span<const float>, float, kernels::Matrix) override {}
    void AddRmsNorm(kernels::Matrix, kernels::Matrix, std::span<const float>, float,
                    kernels::Matrix) override {}
    void MatMul(kernels::Matrix, const kernels::PackedMatrix&, std::span<const float>,
                kernels::Matrix) override {}
    void RotateAndStore(kernels::Matrix, const kernels::AttentionShape&, const QkNorm&,
                        const kernels::RopeTable&, std::span<const kernels::SequenceRows>, int,
                        kv::KvStore&) override {}
    void Attention(kernels::Matrix, const kernels::AttentionShape&, std::span<const kernels::SequenceRows>,
                   int, const kv::KvStore&, kernels::Matrix) override {}
    void SwiGlu(kernels::Matrix, kernels::Matrix) override {}
  };
  DenseKernels kernels;
  const auto decoder = Decoder::Load(GoldenFolder("mixtral"), kernels);
  EXPECT_EQ(decoder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoder.status().message()),
              HasSubstr("the backend \"dense\" runs no mixtures of experts"));
}

// Weights of layers behind the last one, for multi-token prediction, are of no use and no mistake.
TEST(ExtraLayersTest, AreIgnoredWhereTheConfigNamesThem) {
  const ModelFolder folder("glm4-moe");
  folder.EditTensors([](nlohmann::json& header, std::string& data) {
    header["model.layers.3.eh_proj.weight"] = {
        {"dtype", "F32"}, {"shape", {1, 1}}, {"data_offsets", {data.size(), data.size() + 4}}};
    data += "1234";
  });
  const auto kernels = kernels::MakeReferenceKernels();
  EXPECT_TRUE(Decoder::Load(folder.path(), *kernels).ok());
  folder.EditConfig([](nlohmann::json& config) { config["num_nextn_predict_layers"] = 0; });
  EXPECT_THAT(std::string(Decoder::Load(folder.path(), *kernels).status().message()),
              HasSubstr("tensor \"model.layers.3.eh_proj.weight\" [1, 1] is not known"));
}

}  // namespace
}  // namespace baton::model
