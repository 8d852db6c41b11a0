// GGUF files of model folders: they load, and compute the very bits of the folder that they were made from.
// And what is not known in one is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model/decoder.h"
#include "engine/model/quantized_folder.h"
#include "engine/model/summary.h"
#include "tests/unit/engine/model/gguf_of_folder.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using gguf::BytesOf;
using gguf::GgufWriter;
using gguf::ValueType;
using testing::ElementsAre;
using testing::HasSubstr;

class GgufModelTest : public testing::Test {
 protected:
  GgufModelTest() : path_(testing::TempDir() + "/model-" + std::to_string(getpid()) + ".gguf") {}
  ~GgufModelTest() override { std::filesystem::remove(path_); }

  void Write(const GgufWriter& writer) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << writer.Bytes();
  }
  // The error of loading, which the summary has, too; empty: it loads.
  std::string Problem(const GgufWriter& writer) {
    Write(writer);
    const auto decoder = Decoder::Load(path_, *kernels_);
    const auto summary = ModelSummary::Load(path_);
    const absl::Status seen = summary.ok() ? summary->loads : summary.status();
    EXPECT_EQ(seen, decoder.status());
    return std::string(decoder.status().message());
  }

  std::vector<float> Logits(const std::string& model, WeightPrecision precision = WeightPrecision::kStored) {
    const auto decoder = Decoder::Load(model, *kernels_, {.precision = precision});
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    if (!decoder.ok()) return {};
    auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 3);
    EXPECT_TRUE(store.ok()) << store.status();
    const std::vector<BlockId> blocks = {BlockId(0), BlockId(1), BlockId(2)};
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < 40; ++i) tokens.emplace_back(7 * i % 100);
    std::vector<int64_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    const kernels::SequenceRows sequence{.rows = 40, .blocks = blocks};
    std::vector<float> logits(tokens.size() * static_cast<size_t>((*decoder)->config().vocabulary));
    (*decoder)->Forward({tokens, std::span(&sequence, 1), rows}, *store, logits, [](int) {});
    return logits;
  }

  const std::string path_;
  const std::unique_ptr<kernels::Kernels> kernels_ = *kernels::MakeKernels("cpu", 1);
};

TEST_F(GgufModelTest, HasTheBitsOfItsFolder) {
  for (const char* name : {"llama-gqa-tied", "llama-mha", "llama-bias", "llama-linear", "llama-yarn",
                           "llama3-rope", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const ModelFolder folder(name);
    Write(GgufOf(folder.path()));
    const auto of_folder = ModelConfig::Load(folder.path()), of_file = ModelConfig::Load(path_);
    ASSERT_TRUE(of_file.ok()) << of_file.status();
    EXPECT_EQ(of_file->Canonical(), of_folder->Canonical());
    EXPECT_EQ(of_file->eos, of_folder->eos);
    const std::vector<float> expected = Logits(folder.path());
    EXPECT_EQ(Logits(path_), expected);
    const auto in_folder = ModelSummary::Load(folder.path()), in_file = ModelSummary::Load(path_);
    ASSERT_TRUE(in_file.ok()) << in_file.status();
    EXPECT_TRUE(in_file->loads.ok()) << in_file->loads;
    EXPECT_EQ(in_file->stored, in_folder->stored);
    EXPECT_EQ(in_file->matrix_bytes, in_folder->matrix_bytes);
  }
}

TEST_F(GgufModelTest, IsQuantizedAtLoadAsItsFolder) {
  for (const char* name : {"llama-gqa-tied", "llama-mha", "qwen3"}) {
    const ModelFolder folder(name);
    Write(GgufOf(folder.path()));
    for (const WeightPrecision precision :
         {WeightPrecision::kBF16, WeightPrecision::kInt8, WeightPrecision::kInt4}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(Name(precision)));
      EXPECT_EQ(Logits(path_, precision), Logits(folder.path(), precision));
    }
  }
}

// The control of the test above: with the rows of Q and K in a folder's order, the numbers are others.
TEST_F(GgufModelTest, TheOrderOfRowsMatters) {
  const ModelFolder folder("llama-gqa-tied");
  Write(GgufOf(folder.path(), /*paired=*/false));
  EXPECT_NE(Logits(path_), Logits(folder.path()));
}

TEST_F(GgufModelTest, ReadsDefaultsAndEndTokens) {
  const ModelFolder folder("qwen2");
  GgufWriter writer = GgufOf(folder.path());
  writer.F32("general.sampling.temp", 0.5f)
      .Put("general.sampling.top_k", ValueType::kI32, BytesOf(int32_t{20}))
      .F32("general.sampling.top_p", 0.75f)
      .U32("tokenizer.ggml.eot_token_id", 9)
      .U32("tokenizer.ggml.eom_token_id", 9);
  Write(writer);
  const auto config = ModelConfig::Load(path_);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto first = ModelConfig::Load(folder.path())->eos.at(0);
  EXPECT_THAT(config->eos, ElementsAre(first, TokenId(9)));
  const auto defaults = GenerationDefaults::Load(path_, config->vocabulary);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, 0.5f);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->top_p, 0.75f);
  EXPECT_FALSE(defaults->min_p.has_value());
}

TEST_F(GgufModelTest, ADefaultThatCanNotBeUsedIsLeftOut) {
  const ModelFolder folder("qwen2");
  GgufWriter writer = GgufOf(folder.path());
  Write(writer.F32("general.sampling.top_p", 0)
            .Put("general.sampling.top_k", ValueType::kI32, BytesOf(int32_t{-1})));
  const auto defaults = GenerationDefaults::Load(path_, ModelConfig::Load(path_)->vocabulary);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_FALSE(defaults->top_p || defaults->top_k);
  EXPECT_THAT(defaults->left_out, ElementsAre(HasSubstr("\"top_p\""), HasSubstr("\"top_k\"")));
}

TEST_F(GgufModelTest, RefusesByNameWhatIsNotKnown) {
  const ModelFolder folder("llama-gqa-tied");
  const auto with = [&] { return GgufOf(folder.path()); };
  EXPECT_EQ(Problem(with()), "");
  EXPECT_THAT(Problem(with().U32("llama.parallel_residual", 1)),
              HasSubstr(path_ + ": key \"llama.parallel_residual\" is not known"));
  EXPECT_THAT(Problem(with().U32("llama.expert_count", 8)),
              HasSubstr("expert_count\" is 8: only 0 is known"));
  EXPECT_THAT(Problem(with().U32("split.count", 3)), HasSubstr("only models in one file"));
  EXPECT_THAT(Problem(with().U32("llama.rope.dimension_count", 4)), HasSubstr("rope.dimension_count\" is 4"));
  EXPECT_THAT(Problem(with().U32("llama.attention.sliding_window", 16)), HasSubstr("windows are not read"));
  EXPECT_THAT(Problem(with().Text("llama.rope.scaling.type", "longrope")),
              HasSubstr("rope.scaling.type\" is \"longrope\": known are none, linear, yarn"));
  EXPECT_THAT(Problem(with().F32("llama.rope.scaling.attn_factor", 2)), HasSubstr("attn_factor\" is 2"));
  EXPECT_THAT(Problem(with().Text("llama.vocab_size", "many").U32("llama.odd", 1)), HasSubstr("llama.odd"));
  EXPECT_THAT(Problem(with().U32("tokenizer.ggml.eot_token_id", 1 << 20)), HasSubstr("eos_token_id"));
  EXPECT_THAT(Problem(with().Tensor("blk.0.attn_sinks.weight", {2}, gguf::kIdF32, "12345678")),
              HasSubstr("tensor \"blk.0.attn_sinks.weight\" [2] is not known"));
  EXPECT_THAT(Problem(with().Tensor("model.norm.weight", {2}, gguf::kIdF32, "12345678")),
              HasSubstr("tensor \"model.norm.weight\" is in another shard too, or under another name"));
  EXPECT_THAT(Problem(GgufWriter().Text("general.architecture", "gemma3")),
              HasSubstr("key \"general.architecture\" is \"gemma3\": Baton runs llama, qwen2, qwen3"));
  EXPECT_THAT(Problem(GgufWriter()), HasSubstr("key \"general.architecture\" is missing"));
  EXPECT_THAT(Problem(GgufWriter().Text("general.architecture", "llama")),
              HasSubstr("tensor \"token_embd.weight\" is missing"));
}

TEST_F(GgufModelTest, RefusesDivisorsThatAreNoScalingOfLlama3) {
  const ModelFolder folder("llama-gqa-tied");
  const int half = ModelConfig::Load(folder.path())->head_dim / 2;
  std::string rising, ones;
  for (int i = 0; i < half; ++i) {
    rising += BytesOf(static_cast<float>(1 + i));
    ones += BytesOf(1.0f);
  }
  const auto with = [&](const std::vector<int64_t>& shape, const std::string& bytes) {
    return GgufOf(folder.path()).Tensor("rope_freqs.weight", shape, gguf::kIdF32, bytes);
  };
  EXPECT_EQ(Problem(with({half}, ones)), "");
  EXPECT_THAT(Problem(with({half}, rising)), HasSubstr("other divisors are not known"));
  EXPECT_THAT(Problem(with({half - 1}, ones)), HasSubstr("values of f32"));
  ones.replace(0, 4, BytesOf(0.5f));
  EXPECT_THAT(Problem(with({half}, ones)), HasSubstr("is not at least 1"));
}

TEST_F(GgufModelTest, IsNotQuantizedIntoAFolder) {
  const ModelFolder folder("llama-gqa-tied");
  Write(GgufOf(folder.path()));
  const absl::Status status = WriteQuantized({.source = path_, .target = path_ + "-quantized"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("start from the original"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "-quantized"));
}

}  // namespace
}  // namespace baton::model
