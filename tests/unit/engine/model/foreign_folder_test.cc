// Folders as other software writes them: each is loaded, and computes the very bits of the folder it was made
// from. And what loading refuses, the summary refuses in the same words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/model/decoder.h"
#include "engine/model/summary.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

class ForeignFolderTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto kernels = kernels::MakeKernels(GetParam(), /*threads=*/2);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    kernels_ = *std::move(kernels);
  }

  // Logits of all positions of one prompt.
  std::vector<float> Logits(const ModelFolder& folder) {
    const auto decoder = Decoder::Load(folder.path(), *kernels_);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    if (!decoder.ok()) return {};
    const auto summary = ModelSummary::Load(folder.path());
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (!summary.ok()) return {};
    EXPECT_TRUE(summary->loads.ok()) << summary->loads;
    auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 2);
    EXPECT_TRUE(store.ok()) << store.status();
    const std::vector<BlockId> blocks = {BlockId(0), BlockId(1)};
    std::vector<TokenId> tokens;
    std::vector<int64_t> rows;
    for (int32_t i = 0; i < 20; ++i) {
      tokens.emplace_back(7 * i % 100);
      rows.push_back(i);
    }
    const kernels::SequenceRows sequence{.rows = 20, .blocks = blocks};
    std::vector<float> logits(static_cast<size_t>(20 * (*decoder)->config().vocabulary));
    (*decoder)->Forward({tokens, std::span(&sequence, 1), rows}, *store, logits, [](int) {});
    return logits;
  }

  std::unique_ptr<kernels::Kernels> kernels_;
};

INSTANTIATE_TEST_SUITE_P(Backends, ForeignFolderTest, testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ForeignFolderTest, TiedEmbeddingsUnderTheHeadsName) {
  const ModelFolder folder("llama-gqa-tied");
  const auto plain = Logits(folder);
  // As save_model of safetensors.torch writes it: the first name in the alphabet stays, the other is noted.
  folder.EditTensors([](json& header, std::string&) {
    header[kHead] = header[kEmbedding];
    header.erase(kEmbedding);
    header["__metadata__"][kEmbedding] = kHead;
  });
  EXPECT_EQ(Logits(folder), plain);
}

TEST_P(ForeignFolderTest, MetadataThatIsNull) {
  const ModelFolder folder("qwen3");
  const auto plain = Logits(folder);
  folder.EditTensors([](json& header, std::string&) { header["__metadata__"] = nullptr; });
  EXPECT_EQ(Logits(folder), plain);
}

TEST_P(ForeignFolderTest, AModelTypeWithoutArchitectures) {
  for (const char* name : {"llama-mha", "mistral-window", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const ModelFolder folder(name);
    const auto plain = Logits(folder);
    folder.EditConfig([](json& config) {
      ASSERT_TRUE(config.contains("model_type"));
      config.erase("architectures");
    });
    EXPECT_EQ(Logits(folder), plain);
  }
}

TEST_P(ForeignFolderTest, AnUntiedModelNeedsBothMatrices) {
  const ModelFolder folder("llama-mha");
  folder.EditTensors([](json& header, std::string&) {
    header["model.embed.weight"] = header[kEmbedding];
    header.erase(kEmbedding);
  });
  EXPECT_THAT(std::string(Decoder::Load(folder.path(), *kernels_).status().message()),
              HasSubstr("tensor \"model.embed_tokens.weight\" [150, 64] is missing"));
}

// A folder, and a change with which it does not load.
struct Spoiled {
  std::string golden;
  std::function<void(const ModelFolder&)> spoil;
};

TEST(ModelSummaryLoadsTest, SaysWhatLoadingSays) {
  const Spoiled cases[] = {
      {"llama-gqa-tied",
       [](const ModelFolder& folder) {
         folder.EditTensors([](json& header, std::string&) {
           header["model.embed.weight"] = header[kEmbedding];
           header.erase(kEmbedding);
         });
       }},
      {"llama-gqa-tied",
       [](const ModelFolder& folder) {
         folder.EditTensors([](json& header, std::string& data) {  // under both names, with other bytes
           const size_t begin = header[kEmbedding]["data_offsets"][0];
           const size_t end = header[kEmbedding]["data_offsets"][1];
           header[kHead] = header[kEmbedding];
           header[kHead]["data_offsets"] = {data.size(), data.size() + (end - begin)};
           data += std::string(end - begin, '\0');
         });
       }},
      {"llama-mha",
       [](const ModelFolder& folder) {
         folder.EditConfig([](json& config) { config["intermediate_size"] = 81; });
       }},
      {"llama-mha",
       [](const ModelFolder& folder) {
         folder.EditConfig([](json& config) { config["num_hidden_layers"] = 1; });
       }},
      {"llama-bias",
       [](const ModelFolder& folder) {
         folder.EditConfig([](json& config) { config["mlp_bias"] = false; });
       }},
      {"qwen3",
       [](const ModelFolder& folder) {
         folder.EditTensors([](json& header, std::string&) {
           header["model.layers.0.self_attn.k_norm.bias"] = header["model.layers.0.self_attn.k_norm.weight"];
           header.erase("model.layers.0.self_attn.k_norm.weight");
         });
       }},
  };
  const auto kernels = kernels::MakeReferenceKernels();
  for (const Spoiled& one : cases) {
    const ModelFolder folder(one.golden);
    one.spoil(folder);
    const auto decoder = Decoder::Load(folder.path(), *kernels);
    ASSERT_FALSE(decoder.ok());
    const auto summary = ModelSummary::Load(folder.path());
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->loads, decoder.status());
  }
}

}  // namespace
}  // namespace baton::model
