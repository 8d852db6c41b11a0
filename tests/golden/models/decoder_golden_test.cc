// Every family and option against what transformers computes in float32 with eager attention
// (make_goldens.py), for every backend, through paged KV whose blocks lie in no order, at several chunk
// sizes.
//
// Tolerance: both sides compute in float32 and differ in the order of their sums only. Logits reach 20, where
// one unit in the last place is 2e-6; two or three layers of sums over at most 80 products leave some tens of
// units. 2e-4 is four times the largest difference seen, and a tenth of what the smallest mistake makes (the
// negative control).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include "engine/model/decoder.h"
#include "engine/model/safetensors.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

constexpr float kTolerance = 2e-4f;
constexpr uint32_t kSeed = 20;  // of the block order

struct Case {
  std::string backend;
  std::string model;
};

// Results of transformers.
struct Golden {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;  // the first from the prompt's last position
  int64_t prefill_positions = 0;
  std::vector<float> logits;  // [prefill_positions + steps, vocabulary]
};

std::string FolderOf(const std::string& model) {
  return std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/" + model;
}

Golden ReadGolden(const std::string& folder) {
  Golden golden;
  const auto json = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
  for (int32_t id : json["prompt"]) golden.prompt.emplace_back(id);
  for (int32_t id : json["greedy"]) golden.greedy.emplace_back(id);
  golden.prefill_positions = json["prefill_positions"];
  const auto file = SafetensorsFile::Open(folder + "/golden.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  const auto bytes = file->tensors().front().bytes;
  golden.logits.resize(bytes.size() / sizeof(float));
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(golden.logits)).begin());
  return golden;
}

class DecoderGoldenTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto kernels = kernels::MakeKernels(GetParam().backend, 2);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    kernels_ = *std::move(kernels);
    const std::string folder = FolderOf(GetParam().model);
    // Products of bfloat16 would round activations, which transformers does not here.
    auto decoder = Decoder::Load(folder, *kernels_, {.precision = WeightPrecision::kF32});
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    decoder_ = *std::move(decoder);
    golden_ = ReadGolden(folder);
    const auto positions = static_cast<int64_t>(golden_.prompt.size() + golden_.greedy.size());
    auto store = kv::KvStore::Create(decoder_->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 64);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::make_unique<kv::KvStore>(*std::move(store));
    std::vector<BlockId> all;
    for (uint32_t id = 0; id < 64; ++id) all.emplace_back(id);
    std::shuffle(all.begin(), all.end(), std::mt19937(kSeed));
    blocks_.assign(all.begin(), all.begin() + BlocksFor(positions));
    // Stale bytes of an earlier sequence must not matter.
    for (BlockId id : all)
      std::ranges::fill(store_->layers(id, 0, decoder_->config().layers), std::byte{0x7F});
  }

  // Logits of the last `wanted` of `tokens`, which stand at [first, first + size).
  std::vector<float> Run(std::span<const TokenId> tokens, int64_t first, int64_t wanted) {
    const auto rows = static_cast<int64_t>(tokens.size());
    const kernels::SequenceRows sequence{.rows = rows, .first_position = first, .blocks = blocks_};
    std::vector<int64_t> logit_rows(static_cast<size_t>(wanted));
    std::iota(logit_rows.begin(), logit_rows.end(), rows - wanted);
    std::vector<float> logits(static_cast<size_t>(wanted * decoder_->config().vocabulary));
    int layers_done = 0;
    decoder_->Forward({tokens, std::span(&sequence, 1), logit_rows}, *store_, logits,
                      [&](int layer) { EXPECT_EQ(layer, layers_done++); });
    EXPECT_EQ(layers_done, decoder_->config().layers);
    return logits;
  }

  // Compares rows of logits with golden rows from `golden_row` on.
  void ExpectNear(std::span<const float> logits, int64_t golden_row) {
    const float* expected = golden_.logits.data() + golden_row * decoder_->config().vocabulary;
    float worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const float difference = std::abs(logits[i] - expected[i]);
      worst = difference <= worst ? worst : difference;  // NaN counts as worst
    }
    worst_ = worst <= worst_ ? worst_ : worst;
    EXPECT_LE(worst, kTolerance) << "golden row " << golden_row;
  }

  // Prefill in chunks, then decode one by one, always feeding our own greedy token.
  void RunAndCompare(int64_t chunk) {
    SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", block order seed " << kSeed);
    const auto length = static_cast<int64_t>(golden_.prompt.size());
    const int64_t vocabulary = decoder_->config().vocabulary;
    std::vector<float> tail;  // logits of the last positions so far
    for (int64_t first = 0; first < length; first += chunk) {
      const int64_t rows = std::min(chunk, length - first);
      const int64_t wanted =
          std::clamp<int64_t>(first + rows - (length - golden_.prefill_positions), 0, rows);
      const auto logits = Run(std::span(golden_.prompt).subspan(first, rows), first, wanted);
      tail.insert(tail.end(), logits.begin(), logits.end());
    }
    ASSERT_EQ(static_cast<int64_t>(tail.size()), golden_.prefill_positions * vocabulary);
    ExpectNear(tail, 0);
    std::vector<float> last(tail.end() - vocabulary, tail.end());
    for (size_t step = 0; step < golden_.greedy.size(); ++step) {
      const TokenId token(static_cast<int32_t>(std::ranges::max_element(last) - last.begin()));
      ASSERT_EQ(token.value(), golden_.greedy[step].value()) << "step " << step;
      if (step + 1 == golden_.greedy.size()) break;
      last = Run(std::span(&token, 1), length + static_cast<int64_t>(step), 1);
      ExpectNear(last, golden_.prefill_positions + static_cast<int64_t>(step));
    }
    RecordProperty("largest_difference", testing::PrintToString(worst_));
  }

  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<kv::KvStore> store_;
  std::vector<BlockId> blocks_;
  Golden golden_;
  float worst_ = 0;
};

TEST_P(DecoderGoldenTest, OneBlockAtATime) { RunAndCompare(16); }
TEST_P(DecoderGoldenTest, TwoBlocksAtATime) { RunAndCompare(32); }
TEST_P(DecoderGoldenTest, ChunksThatEndInsideBlocks) { RunAndCompare(23); }
TEST_P(DecoderGoldenTest, WholePrompt) { RunAndCompare(static_cast<int64_t>(golden_.prompt.size())); }

// Most of the folders are in bfloat16, whose products on cpu round activations to it: 2^-9 of each at most.
TEST_P(DecoderGoldenTest, AsStoredItStaysClose) {
  auto decoder = Decoder::Load(FolderOf(GetParam().model), *kernels_);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  decoder_ = *std::move(decoder);
  const auto length = static_cast<int64_t>(golden_.prompt.size());
  const std::vector<float> logits = Run(golden_.prompt, 0, golden_.prefill_positions);
  ASSERT_EQ(std::ssize(logits), golden_.prefill_positions * decoder_->config().vocabulary);
  double error = 0, size = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    error += std::pow(double{logits[i]} - golden_.logits[i], 2);
    size += std::pow(double{golden_.logits[i]}, 2);
  }
  // Scores of granite-defaults are not divided by the heads' size (attention_multiplier 1), so its softmax
  // magnifies what is rounded.
  const double bound = GetParam().model == "granite-defaults" ? 0.08 : 0.02;
  EXPECT_LT(std::sqrt(error / size), bound) << length << " tokens";
  RecordProperty("relative_error", testing::PrintToString(std::sqrt(error / size)));
}

// The negative control: the same comparison must fail as soon as one option is read wrongly.
struct Mistake {
  std::string model;
  std::function<void(nlohmann::json&)> make;  // in config.json
};

TEST(GoldenNegativeControlTest, EveryOptionMovesTheLogitsFarBeyondTheTolerance) {
  using Json = nlohmann::json;
  const Mistake mistakes[] = {
      {"llama3-rope", [](Json& config) { config["rope_scaling"]["factor"] = 7.0; }},
      {"llama3-rope", [](Json& config) { config["rope_scaling"]["high_freq_factor"] = 3.0; }},
      {"llama-linear", [](Json& config) { config["rope_parameters"]["rope_type"] = "default"; }},
      {"llama-yarn", [](Json& config) { config["rope_scaling"]["attention_factor"] = 1.0; }},
      {"llama-yarn", [](Json& config) { config["rope_scaling"]["beta_slow"] = 0.25; }},
      {"llama-mha", [](Json& config) { config["rms_norm_eps"] = 1e-3; }},
      {"mistral-window", [](Json& config) { config["sliding_window"] = 25; }},
      {"qwen2", [](Json& config) { config["rope_parameters"]["rope_theta"] = 900000.0; }},
      {"qwen2-window", [](Json& config) { config["max_window_layers"] = 2; }},
      {"qwen3-window", [](Json& config) { config["layer_types"][0] = "full_attention"; }},
      {"qwen3-moe", [](Json& config) { config["norm_topk_prob"] = false; }},
      {"qwen3-moe", [](Json& config) { config["num_experts_per_tok"] = 2; }},
      {"glm4-moe", [](Json& config) { config["n_group"] = 1, config["topk_group"] = 1; }},
      {"glm4-moe", [](Json& config) { config["topk_group"] = 3; }},
      {"glm4-moe", [](Json& config) { config["routed_scaling_factor"] = 1.4; }},
      {"glm4-moe", [](Json& config) { config["rope_parameters"]["partial_rotary_factor"] = 1.0; }},
      {"smollm3", [](Json& config) { config["no_rope_layers"][1] = 1; }},
      {"smollm3", [](Json& config) { config["layer_types"][1] = "full_attention"; }},
      {"smollm3", [](Json& config) { config["sliding_window"] = 21; }},
      {"smollm3-defaults", [](Json& config) { config["no_rope_layer_interval"] = 3; }},
      {"granite", [](Json& config) { config["embedding_multiplier"] = 0.31; }},
      {"granite", [](Json& config) { config["attention_multiplier"] = 0.31; }},
      {"granite", [](Json& config) { config["residual_multiplier"] = 1.55; }},
      {"granite", [](Json& config) { config["logits_scaling"] = 0.51; }},
      {"granite", [](Json& config) { config["rms_norm_eps"] = 1e-3; }},
      {"ministral3", [](Json& config) { config["rope_parameters"]["llama_4_scaling_beta"] = 0.31; }},
      {"ministral3", [](Json& config) { config["rope_parameters"]["mscale_all_dim"] = 0.6; }},
      {"ministral3", [](Json& config) { config["sliding_window"] = 21; }},
      {"mistral3", [](Json& config) { config["text_config"]["rope_parameters"]["factor"] = 7.0; }},
      {"hunyuan-v1", [](Json& config) { config["rope_parameters"]["alpha"] = 29.0; }},
      {"hunyuan-v1", [](Json& config) { config["rms_norm_eps"] = 1e-2; }},
      {"ernie4-5", [](Json& config) { config["rope_parameters"]["factor"] = 2.1; }},
      {"olmo2", [](Json& config) { config["rms_norm_eps"] = 1e-3; }},
      {"olmo3", [](Json& config) { config["layer_types"][0] = "sliding_attention"; }},
      {"olmo3", [](Json& config) { config["sliding_window"] = 21; }},
      {"olmo3", [](Json& config) { config["rope_parameters"]["sliding_attention"]["rope_theta"] = 1e6; }},
      {"olmo3", [](Json& config) { config["rope_parameters"]["full_attention"]["factor"] = 3.5; }},
      {"phi3-long", [](Json& config) { config["rope_parameters"]["long_factor"][1] = 1.6; }},
      {"phi3-long", [](Json& config) { config["original_max_position_embeddings"] = 33; }},
      {"phi3-long",
       [](Json& config) {
         config["rope_parameters"]["partial_rotary_factor"] = 0.5,
         config["rope_parameters"]["long_factor"] = {1.0, 1.5, 2.0, 4.0},
         config["rope_parameters"]["short_factor"] = {1.0, 1.5, 2.0, 4.0};
       }},
      {"phi3-short", [](Json& config) { config["rope_parameters"]["short_factor"][1] = 1.2; }},
      {"phi3-short", [](Json& config) { config["rope_parameters"]["attention_factor"] = 1.21; }},
      {"gpt-oss", [](Json& config) { config["swiglu_limit"] = 1.6; }},
      {"gpt-oss", [](Json& config) { config["swiglu_alpha"] = 1.65; }},
      {"gpt-oss", [](Json& config) { config["sliding_window"] = 25; }},
      {"gpt-oss", [](Json& config) { config["layer_types"][1] = "sliding_attention"; }},
      {"gpt-oss", [](Json& config) { config["rope_parameters"]["truncate"] = true; }},
      {"gpt-oss-mxfp4", [](Json& config) { config["rope_scaling"]["factor"] = 3.5; }},
      {"gpt-oss-mxfp4", [](Json& config) { config["num_experts_per_tok"] = 2; }},
  };
  const auto kernels = kernels::MakeReferenceKernels();
  for (const Mistake& mistake : mistakes) {
    const std::filesystem::path folder = testing::TempDir() + "/baton-golden-" + std::to_string(getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::copy(FolderOf(mistake.model), folder, std::filesystem::copy_options::recursive);
    auto config = Json::parse(std::ifstream(folder / "config.json"));
    const Json right = config;
    mistake.make(config);
    ASSERT_NE(config, right);
    std::ofstream(folder / "config.json") << config;
    const auto decoder = Decoder::Load(folder, *kernels);
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    const Golden golden = ReadGolden(folder);
    std::filesystem::remove_all(folder);

    auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 8);
    ASSERT_TRUE(store.ok()) << store.status();
    std::vector<BlockId> blocks;
    for (uint32_t id = 0; id < 8; ++id) blocks.emplace_back(id);
    const auto length = static_cast<int64_t>(golden.prompt.size());
    const kernels::SequenceRows sequence{.rows = length, .blocks = blocks};
    const int64_t last = length - 1;
    std::vector<float> logits(static_cast<size_t>((*decoder)->config().vocabulary));
    (*decoder)->Forward({golden.prompt, std::span(&sequence, 1), std::span(&last, 1)}, *store, logits,
                        [](int) {});
    const float* expected = golden.logits.data() + (golden.prefill_positions - 1) * std::ssize(logits);
    float worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) worst = std::max(worst, std::abs(logits[i] - expected[i]));
    EXPECT_GT(worst, 10 * kTolerance) << mistake.model << " with " << Json::diff(right, config);
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const char* backend : {"reference", "cpu"}) {
    for (const char* model : {"llama-mha",
                              "llama-gqa-tied",
                              "llama3-rope",
                              "llama-linear",
                              "llama-dynamic",
                              "llama-dynamic-original",
                              "llama-yarn",
                              "llama-bias",
                              "llama-sharded",
                              "mistral-window",
                              "mistral-null-window",
                              "qwen2",
                              "qwen2-window",
                              "qwen3",
                              "qwen3-window",
                              "qwen3-moe",
                              "qwen2-moe",
                              "mixtral",
                              "olmoe",
                              "glm4-moe",
                              "gpt-oss",
                              "gpt-oss-mxfp4",
                              "smollm3",
                              "smollm3-defaults",
                              "granite",
                              "granite-defaults",
                              "seed-oss",
                              "seed-oss-defaults",
                              "arcee",
                              "arcee-defaults",
                              "ministral3",
                              "ministral3-defaults",
                              "mistral3",
                              "mistral3-tied",
                              "hunyuan-v1",
                              "hunyuan-v1-defaults",
                              "ernie4-5",
                              "ernie4-5-defaults",
                              "olmo2",
                              "olmo2-defaults",
                              "olmo3",
                              "olmo3-defaults",
                              "phi3-long",
                              "phi3-short",
                              "phi3-defaults",
                              "llama-heads-of-20",
                              "qwen3-heads-of-10"}) {
      cases.push_back({backend, model});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllModels, DecoderGoldenTest, testing::ValuesIn(AllCases()), [](const auto& info) {
  std::string name = info.param.backend + "_" + info.param.model;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace baton::model
