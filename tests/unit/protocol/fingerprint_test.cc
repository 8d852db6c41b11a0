#include "protocol/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>

#include "text/config/config.h"

namespace baton::protocol {
namespace {

model::ModelConfig Config() {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.layers = 2;
  config.windows = {0, 0};
  return config;
}

Fingerprint Make() {
  const kv::KvLayout kv{.layers = 2, .kv_heads = 4, .head_dim = 16};
  return {.model = Config().Describe(),
          .config = Config().Digest(),
          .weights = std::string(32, '\x5A'),
          .kv = kv,
          .numerics = "reference/1"};
}

TEST(FingerprintTest, EqualInputsGiveEqualFingerprints) {
  EXPECT_EQ(Make(), Make());
  EXPECT_EQ(Make().Digest(), Make().Digest());
  EXPECT_EQ(Make().Digest().size(), 32u);
  EXPECT_EQ(Make().config.size(), 32u);
  EXPECT_EQ(FirstDifference(Make(), Make()), std::nullopt);
}

TEST(FingerprintTest, NamesTheFirstDifferenceWithBothValues) {
  using Change = std::function<void(Fingerprint&)>;
  const std::pair<std::string, Change> cases[] = {
      {"protocol: 1 here, 2 there", [](Fingerprint& f) { f.protocol = 2; }},
      {"model: " + Config().Describe() + " here, other there", [](Fingerprint& f) { f.model = "other"; }},
      {"weights: 5a5a5a5a5a5a5a5a... here, 7777777777777777... there",
       [](Fingerprint& f) { f.weights = std::string(32, '\x77'); }},
      {"kv.layers: 2 here, 3 there", [](Fingerprint& f) { f.kv.layers = 3; }},
      {"kv.kv_heads: 4 here, 8 there", [](Fingerprint& f) { f.kv.kv_heads = 8; }},
      {"kv.head_dim: 16 here, 32 there", [](Fingerprint& f) { f.kv.head_dim = 32; }},
      {"kv.block_tokens: 16 here, 32 there", [](Fingerprint& f) { f.block_tokens = 32; }},
      {"kv.key_dtype: f32 here, bf16 there", [](Fingerprint& f) { f.kv.key_dtype = tensor::DType::kBF16; }},
      {"kv.value_dtype: f32 here, bf16 there",
       [](Fingerprint& f) { f.kv.value_dtype = tensor::DType::kBF16; }},
      {"kv.exceptions: none here, layer 1 f32 bf16 there",
       [](Fingerprint& f) {
         f.kv.exceptions = {
             {.layer = 1, .key_dtype = tensor::DType::kF32, .value_dtype = tensor::DType::kBF16}};
       }},
      {"numerics: reference/1 here, cpu-f32/1 there", [](Fingerprint& f) { f.numerics = "cpu-f32/1"; }}};
  for (const auto& [expected, change] : cases) {
    Fingerprint there = Make();
    change(there);
    EXPECT_EQ(FirstDifference(Make(), there), expected);
    EXPECT_NE(there.Digest(), Make().Digest()) << expected;
    EXPECT_NE(there, Make()) << expected;
  }
}

TEST(FingerprintTest, SeesADifferenceDeepInALongDigestOrInTheConfig) {
  Fingerprint there = Make();
  there.weights.back() ^= 1;
  EXPECT_TRUE(FirstDifference(Make(), there).has_value());
  model::ModelConfig other = Config();
  other.rope_theta = 10001;
  there = Make();
  there.config = other.Digest();
  EXPECT_EQ(other.Describe(), Make().model);
  EXPECT_EQ(FirstDifference(Make(), there)->substr(0, 8), "config: ");
}

}  // namespace
}  // namespace baton::protocol
