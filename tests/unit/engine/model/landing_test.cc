// Landed KV against the KV that the same keys and values have where they stand.
#include "engine/model/landing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "engine/kv/store/kv_codec.h"
#include "engine/model/rope.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

using nlohmann::json;
using tensor::DType;

constexpr uint64_t kSeed = 1945;
constexpr int kHeadDim = 32, kKvHeads = 2, kLayers = 2, kContext = 4096;

RopeAngles Angles(const json& rope) {
  const auto config = ModelConfig::FromJson(json{
      {"architectures", {"LlamaForCausalLM"}},
      {"vocab_size", 8},
      {"hidden_size", 64},
      {"intermediate_size", 8},
      {"num_hidden_layers", 1},
      {"num_attention_heads", 2},
      {"head_dim", kHeadDim},
      {"max_position_embeddings", kContext},
      {"rms_norm_eps", 1e-6},
      {"rope_parameters", rope}}.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return *RopeAngles::Create(*config);
}

json Plain() { return {{"rope_type", "default"}, {"rope_theta", 10000.0}}; }
json Yarn() {
  return {{"rope_type", "yarn"},
          {"rope_theta", 10000.0},
          {"factor", 4.0},
          {"original_max_position_embeddings", 1024}};
}

class Landings {
 public:
  Landings(DType keys, DType values, const json& rope)
      : angles_(Angles(rope)),
        store_(kv::KvStore::Create({.layers = kLayers,
                                    .kv_heads = kKvHeads,
                                    .head_dim = kHeadDim,
                                    .key_dtype = keys,
                                    .value_dtype = values},
                                   32)
                   .value()) {}

  const kernels::RopeTable rope() const { return angles_.table(); }
  kv::KvStore& store() { return store_; }

  // Writes random vectors of `tokens` tokens to `to`, as a forward pass does that has the first of them at
  // `position`; the same for each `seed`.
  void Write(uint64_t seed, std::span<const BlockId> to, int64_t at, int64_t position, int64_t tokens) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const auto kernels = kernels::MakeReferenceKernels();
    const kernels::AttentionShape shape = {
        .heads = kKvHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .scale = 1};
    // The operation writes a sequence's tokens to the blocks of their positions.
    std::vector<BlockId> table(static_cast<size_t>(BlocksFor(position + tokens)), BlockId(31));
    ASSERT_EQ(at % kBlockTokens, position % kBlockTokens);
    for (int64_t b = 0; b < BlocksFor(at % kBlockTokens + tokens); ++b) {
      table[static_cast<size_t>(position / kBlockTokens + b)] =
          to[static_cast<size_t>(at / kBlockTokens + b)];
    }
    for (int l = 0; l < kLayers; ++l) {
      std::vector<float> qkv(static_cast<size_t>(tokens) * 3 * kKvHeads * kHeadDim);
      for (float& value : qkv) value = normal(random);
      const kernels::SequenceRows rows = {
          .first_row = 0, .rows = tokens, .first_position = position, .blocks = table};
      kernels->RotateAndStore({qkv.data(), tokens, 3 * kKvHeads * kHeadDim, 3 * kKvHeads * kHeadDim}, shape,
                              {}, rope(), {&rows, 1}, l, store_);
    }
  }

  std::vector<float> Key(int layer, int head, std::span<const BlockId> blocks, int64_t at) {
    std::vector<float> key(kHeadDim);
    kv::LoadKey(store_.layout().key_dtype, Of(blocks, at) + store_.layer(layer).key_offset(head), kHeadDim,
                at % kBlockTokens, key.data());
    return key;
  }
  std::vector<float> Value(int layer, int head, std::span<const BlockId> blocks, int64_t at) {
    std::vector<float> value(kHeadDim);
    kv::LoadValue(store_.layout().value_dtype, Of(blocks, at) + store_.layer(layer).value_offset(head),
                  kHeadDim, at % kBlockTokens, value.data());
    return value;
  }
  std::string Bytes(BlockId block) {
    return {reinterpret_cast<const char*>(store_.block(block)),
            static_cast<size_t>(store_.layout().block_bytes())};
  }

 private:
  std::byte* Of(std::span<const BlockId> blocks, int64_t at) {
    return store_.block(blocks[static_cast<size_t>(at / kBlockTokens)]);
  }
  RopeAngles angles_;
  kv::KvStore store_;
};

std::vector<BlockId> Blocks(int first, int count) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < count; ++i) blocks.emplace_back(first + i);
  return blocks;
}

struct Case {
  DType keys, values;
  json rope;
  double tolerance;  // of a key's number, relative to the largest in it
};

class LandingTest : public testing::TestWithParam<int> {
 protected:
  static Case Get(int i) {
    const std::vector<Case> cases = {
        {DType::kF32, DType::kF32, Plain(), 2e-6},   {DType::kF32, DType::kF32, Yarn(), 2e-6},
        {DType::kBF16, DType::kBF16, Plain(), 0.02}, {DType::kF8, DType::kF8, Yarn(), 0.2},
        {DType::kI8, DType::kI4, Plain(), 0.03},     {DType::kI4, DType::kI8, Plain(), 0.6}};
    return cases[static_cast<size_t>(i)];
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, LandingTest, testing::Range(0, 6));

// Canonical positions 16.. land far behind, at another offset within a block.
TEST_P(LandingTest, KeysAreThoseOfThePositionAndValuesTheSame) {
  const Case test = Get(GetParam());
  Landings at(test.keys, test.values, test.rope);
  const auto canonical = Blocks(0, 4), real = Blocks(4, 5), landed = Blocks(10, 5);
  constexpr int64_t kFrom = 16, kTokens = 37, kPosition = 3000;  // 3000 % 16 = 8
  at.Write(kSeed, canonical, kFrom, kFrom, kTokens);
  at.Write(kSeed, real, 8, kPosition, kTokens);
  std::vector<BlockId> table(static_cast<size_t>(kPosition / kBlockTokens), BlockId(30));
  table.insert(table.end(), landed.begin(), landed.end());
  LandKv(
      at.rope(),
      {.from = canonical, .from_position = kFrom, .to = table, .to_position = kPosition, .tokens = kTokens},
      at.store());
  double worst = 0;
  for (int l = 0; l < kLayers; ++l) {
    for (int h = 0; h < kKvHeads; ++h) {
      for (int64_t t = 0; t < kTokens; ++t) {
        const auto key = at.Key(l, h, landed, 8 + t), expected = at.Key(l, h, real, 8 + t);
        double largest = 0, difference = 0;
        for (size_t d = 0; d < kHeadDim; ++d) {
          largest = std::max(largest, std::abs(double{expected[d]}));
          difference = std::max(difference, std::abs(double{key[d]} - expected[d]));
        }
        worst = std::max(worst, difference / largest);
        EXPECT_EQ(at.Value(l, h, landed, 8 + t), at.Value(l, h, real, 8 + t)) << t;
      }
    }
  }
  EXPECT_GT(worst, 0) << "the keys were not rotated";
  EXPECT_LT(worst, test.tolerance);
}

// And where the position is the same, it is a copy, in every format.
TEST_P(LandingTest, AtItsOwnPositionEverythingIsACopy) {
  const Case test = Get(GetParam());
  Landings at(test.keys, test.values, test.rope);
  const auto canonical = Blocks(0, 3), landed = Blocks(10, 3);
  at.Write(kSeed, canonical, 0, 0, 48);
  LandKv(at.rope(), {.from = canonical, .from_position = 0, .to = landed, .to_position = 0, .tokens = 48},
         at.store());
  for (int b = 0; b < 3; ++b) {
    EXPECT_EQ(at.Bytes(canonical[static_cast<size_t>(b)]), at.Bytes(landed[static_cast<size_t>(b)])) << b;
  }
}

// Keys of a layer without rope know no position.
TEST_P(LandingTest, ALayerThatDoesNotTurnIsCopiedToAnyPosition) {
  const Case test = Get(GetParam());
  Landings at(test.keys, test.values, test.rope);
  const auto canonical = Blocks(0, 2), landed = Blocks(10, 5);
  at.Write(kSeed, canonical, 0, 0, 32);
  LandKv(at.rope(), {.from = canonical, .from_position = 0, .to = landed, .to_position = 48, .tokens = 32},
         at.store(), {false, true});
  for (int64_t t = 0; t < 32; ++t) {
    EXPECT_NE(at.Key(0, 0, canonical, t), at.Key(0, 0, landed, 48 + t)) << t;
    EXPECT_EQ(at.Key(1, 0, canonical, t), at.Key(1, 0, landed, 48 + t)) << t;
    EXPECT_EQ(at.Value(1, 0, canonical, t), at.Value(1, 0, landed, 48 + t)) << t;
  }
}

// Layers with a table of their own are turned by that.
TEST_P(LandingTest, TwoTablesAreOneForEachKindOfLayer) {
  const Case test = Get(GetParam());
  json far = test.rope;
  far["rope_theta"] = 500.0;
  Landings both(test.keys, test.values, test.rope), usual(test.keys, test.values, test.rope),
      other(test.keys, test.values, far);
  const auto canonical = Blocks(0, 2), landed = Blocks(10, 5);
  const Landing landing = {
      .from = canonical, .from_position = 0, .to = landed, .to_position = 48, .tokens = 32};
  const kernels::RopeTable table = other.rope();
  // A key at position 0, which no table turns: the same in all three.
  for (Landings* const at : {&both, &usual, &other}) at->Write(kSeed, canonical, 0, 0, 1);
  LandKv(both.rope(), landing, both.store(), {false, true}, &table);
  LandKv(usual.rope(), landing, usual.store());
  LandKv(other.rope(), landing, other.store());
  EXPECT_EQ(both.Key(0, 0, landed, 48), usual.Key(0, 0, landed, 48));
  EXPECT_EQ(both.Key(1, 0, landed, 48), other.Key(1, 0, landed, 48));
  EXPECT_NE(usual.Key(1, 0, landed, 48), other.Key(1, 0, landed, 48));
}

// In pieces it has the same bits as at once, and nothing else is written.
TEST_P(LandingTest, PiecesHaveTheBitsOfTheWhole) {
  const Case test = Get(GetParam());
  Landings at(test.keys, test.values, test.rope);
  const auto canonical = Blocks(0, 3), whole = Blocks(10, 4), pieces = Blocks(20, 4);
  at.Write(kSeed, canonical, 0, 0, 48);
  const auto land = [&](std::span<const BlockId> to, int64_t first, int64_t tokens) {
    LandKv(at.rope(),
           {.from = canonical,
            .from_position = 16 + first,
            .to = to,
            .to_position = 21 + first,
            .tokens = tokens},
           at.store());
  };
  land(whole, 0, 32);
  for (int64_t first = 31; first >= 0; first -= 1) land(pieces, first, 1);
  for (int b = 0; b < 4; ++b) {
    EXPECT_EQ(at.Bytes(whole[static_cast<size_t>(b)]), at.Bytes(pieces[static_cast<size_t>(b)])) << b;
  }
  for (int64_t t : {20, 53}) {
    for (const float value : at.Value(1, 1, whole, t)) EXPECT_EQ(value, 0) << "beside what was to be written";
  }
}

}  // namespace
}  // namespace baton::model
