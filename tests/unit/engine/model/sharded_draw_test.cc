// Tokens drawn by a group whose logits are not on the host: every rank gets the others' columns and draws the
// same token, which is that of the whole model. GPUs without one: the reference backend, whose memory says
// that the host may not look into it.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <thread>

#include "common/base/random.h"
#include "engine/kernels/collective.h"
#include "engine/model/decoder.h"
#include "tests/fakes/far_memory.h"

namespace baton::model {
namespace {

using kernels::Matrix;
using kernels::PackedMatrix;
using kernels::SequenceRows;

class FarKernels final : public kernels::Kernels {
 public:
  device::Memory& memory() override { return memory_; }
  std::string_view name() const override { return "far"; }
  std::string numerics() const override { return "far/1"; }
  int64_t Begin(const kernels::StepRows& step) override { return near_->Begin(step); }
  void End() override { near_->End(); }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const kernels::WeightView> parts) override {
    return near_->Pack(parts);
  }
  void Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) override {
    near_->Embed(table, ids, first, out);
  }
  void GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) override {
    near_->GatherRows(from, rows, to);
  }
  void RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) override {
    near_->RmsNorm(x, weight, eps, out);
  }
  void AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) override {
    near_->AddRmsNorm(x, y, weight, eps, out);
  }
  void MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) override {
    near_->MatMul(x, w, bias, out);
  }
  void RotateAndStore(Matrix qkv, const kernels::AttentionShape& shape, const QkNorm& norm,
                      const kernels::RopeTable& rope, std::span<const SequenceRows> sequences, int layer,
                      kv::KvStore& store) override {
    near_->RotateAndStore(qkv, shape, norm, rope, sequences, layer, store);
  }
  void Attention(Matrix q, const kernels::AttentionShape& shape, std::span<const SequenceRows> sequences,
                 int layer, const kv::KvStore& store, Matrix out) override {
    near_->Attention(q, shape, sequences, layer, store, out);
  }
  void SwiGlu(Matrix gate_up, Matrix out) override { near_->SwiGlu(gate_up, out); }
  kernels::DeviceSampler* sampler() override { return near_->sampler(); }

 private:
  device::FarMemory memory_;
  std::unique_ptr<Kernels> near_ = kernels::MakeReferenceKernels();
};

constexpr char kModel[] = BATON_SOURCE_DIR "/tests/golden/models/data/llama-mha";
constexpr uint32_t kDrawSeed = 61;
constexpr int64_t kPrompt = 4;
// A mask of 150 tokens: neither rank's columns are all allowed or all forbidden; the last 22 are forbidden.
constexpr std::array<uint32_t, 4> kMask = {0x5A5A5A5A, 0x0FF00FF1, 0xFFFF0000, 0x00FF3333};
constexpr int64_t kSteps = 8;

// A prompt for two sequences, of which the second's logits are delivered, then steps of the first alone, each
// launched before the one before has finished. Returns the first's tokens; logits [2, 150].
std::vector<TokenId> Generate(kernels::Kernels& kernels, kernels::Collective* group,
                              std::vector<float>& logits) {
  const auto decoder = Decoder::LoadShard(kModel, kernels, group);
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 2,
                                   kernels.memory());
  EXPECT_TRUE(store.ok()) << store.status();
  const auto ignore = [](int) {};
  std::mt19937 random(kDrawSeed);
  std::vector<TokenId> prompts;
  for (int64_t i = 0; i < 2 * kPrompt; ++i) prompts.emplace_back(static_cast<int32_t>(random() % 150));
  const std::vector<BlockId> blocks = {BlockId(1), BlockId(0)};
  const auto own = [&](size_t s) { return std::span(blocks).subspan(s, 1); };
  const auto draw = [](int64_t step) {
    return kernels::RowDraw{.uniform = UniformAt(kDrawSeed, static_cast<uint64_t>(step)),
                            .row = 0,
                            .top_k = 50,
                            .slot = 2,
                            .frequency_penalty = 1.5f,
                            .bias_count = 1,
                            .mask_words = static_cast<int32_t>(kMask.size())};
  };
  EXPECT_TRUE((*decoder)->ReservePenaltySlots(3));
  const kernels::TokenBias bias = {.token = 5, .bias = 2};
  const kernels::SeenTokens seen = {.slot = 2, .prompt = std::span(prompts).first(kPrompt), .output = {}};
  std::vector<TokenId> tokens;
  std::vector<TokenId> token(1);
  const std::vector<SequenceRows> both = {{0, kPrompt, 0, own(0)}, {kPrompt, kPrompt, 0, own(1)}};
  const std::vector<int64_t> ends = {kPrompt - 1, 2 * kPrompt - 1};
  const kernels::RowDraw first = draw(0);
  (*decoder)->Forward({prompts, both, ends}, *store, logits, ignore,
                      {std::span(&first, 1), std::span(&bias, 1), std::span(&seen, 1), kMask}, token);
  tokens = token;

  const std::vector<int64_t> wanted = {0};
  const std::span<float> row = std::span(logits).first(150);
  for (int64_t step = 1; step < kSteps; ++step) {
    const SequenceRows next = {0, 1, kPrompt + step - 1, own(0)};
    const kernels::RowDraw own_draw = draw(step);
    const kernels::TakenToken taken;
    const TokenId known = step == 1 ? token[0] : TokenId(0);
    (*decoder)->Launch({std::span(&known, 1), std::span(&next, 1), wanted,
                        step == 1 ? std::span<const kernels::TakenToken>() : std::span(&taken, 1)},
                       *store, row, ignore, {std::span(&own_draw, 1), std::span(&bias, 1), {}, kMask});
    if (step == 1) continue;
    (*decoder)->Finish(row, token);
    tokens.push_back(token[0]);
  }
  (*decoder)->Finish(row, token);
  tokens.push_back(token[0]);
  return tokens;
}

// Uploads do not wait for what is under way, and such a step has no results that could be waited for.
TEST(FenceTest, UploadsWaitForAStepThatBringsNothingHome) {
  FarKernels kernels;
  const auto decoder = Decoder::Load(kModel, kernels);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 1,
                                   kernels.memory());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto& memory = static_cast<const device::FarMemory&>(kernels.memory());
  const std::vector<TokenId> tokens(kPrompt, TokenId(7));
  const std::vector<BlockId> blocks = {BlockId(0)};
  const std::vector<SequenceRows> rows = {{0, kPrompt, 0, blocks}};
  const std::vector<int64_t> last = {kPrompt - 1};
  std::vector<float> logits(150);
  (*decoder)->Launch({tokens, rows, {}}, *store, {}, [](int) {});
  const int before = memory.fences();
  (*decoder)->Finish({}, {});
  EXPECT_EQ(memory.fences(), before + 1);
  (*decoder)->Forward({tokens, rows, last}, *store, logits, [](int) {});
  EXPECT_EQ(memory.fences(), before + 1) << "its logits were waited for";
}

TEST(ShardedDrawTest, EveryRankDrawsTheTokensOfTheWholeModel) {
  SCOPED_TRACE(::testing::Message() << "seed " << kDrawSeed);
  FarKernels alone;
  std::vector<float> logits(300);
  const std::vector<TokenId> expected = Generate(alone, nullptr, logits);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  EXPECT_GT(std::set<TokenId>(expected.begin(), expected.end()).size(), 2u);
  for (const TokenId token : expected) {
    const auto id = static_cast<size_t>(token.value());
    ASSERT_LT(id / 32, kMask.size()) << id;
    EXPECT_NE(kMask[id / 32] >> (id % 32) & 1, 0u) << id;
  }
  for (int ranks : {2, 4}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    const auto group = kernels::MakeInProcessGroup(ranks);
    std::vector<std::vector<TokenId>> outcomes(static_cast<size_t>(ranks));
    std::vector<float> shared(300);  // each rank delivers its columns
    {
      std::vector<std::jthread> threads;
      for (size_t r = 0; r < outcomes.size(); ++r) {
        threads.emplace_back([&, r] {
          FarKernels kernels;
          outcomes[r] = Generate(kernels, group[r].get(), shared);
        });
      }
    }
    for (const auto& tokens : outcomes) EXPECT_EQ(tokens, expected);
    for (size_t i = 0; i < 150; ++i) EXPECT_NEAR(shared[150 + i], logits[150 + i], 1e-4) << i;
  }
}

// A device without an operation that the model has says so, and computes nothing else in its place.
TEST(HostOnlyTest, ADeviceRefusesByNameWhatItHasNoOperationFor) {
  for (const auto& [model, refused] :
       {std::pair{"granite", "embedding_multiplier other than residual_multiplier"},
        std::pair{"arcee", "hidden_act relu2"}, std::pair{"ministral3", "llama_4_scaling_beta beyond"},
        std::pair{"hunyuan-v1", "norm of queries after rope"}, std::pair{"olmo2", "norm behind a block"},
        std::pair{"phi3-long", "partial_rotary_factor other than 1"}}) {
    FarKernels far;
    const auto decoder =
        Decoder::Load(std::string(BATON_SOURCE_DIR "/tests/golden/models/data/") + model, far);
    EXPECT_NE(decoder.status().message().find(std::string("the backend \"far\" has no ") + refused),
              std::string::npos)
        << decoder.status();
  }
}

}  // namespace
}  // namespace baton::model
