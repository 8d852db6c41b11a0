#include "engine/kv/store/kv_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace baton::kv {
namespace {

using tensor::DType;

constexpr int kDim = 24;

class KvCodecTest : public testing::TestWithParam<DType> {
 protected:
  // A head's keys or values of one block, which begin as bytes that mean nothing.
  std::vector<std::byte> Head() const {
    return std::vector<std::byte>(
        static_cast<size_t>(ScalesAt(GetParam(), kDim) + kBlockTokens * int64_t{sizeof(float)}),
        std::byte{0x55});
  }
  std::vector<float> Key(const std::vector<std::byte>& head, int64_t token) const {
    std::vector<float> key(kDim);
    LoadKey(GetParam(), head.data(), kDim, token, key.data());
    return key;
  }
  std::vector<float> Value(const std::vector<std::byte>& head, int64_t token) const {
    std::vector<float> value(kDim);
    LoadValue(GetParam(), head.data(), kDim, token, value.data());
    return value;
  }
  // How far a number may be from what was stored, in units of the vector's largest.
  double Tolerance() const {
    switch (GetParam()) {
      case DType::kBF16:
        return 1.0 / 256;
      case DType::kF8:
        return 1.0 / 16;
      case DType::kI8:
        return 0.51 / 127;
      case DType::kI4:
        return 0.35;  // a number takes from those that it was rotated with
      default:
        return 0;
    }
  }
};

TEST_P(KvCodecTest, KeysLieTokenByTokenAndValuesSideBySide) {
  std::mt19937 random(3);
  std::vector<std::vector<float>> vectors(kBlockTokens, std::vector<float>(kDim));
  std::vector<std::byte> keys = Head(), values = Head();
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    std::vector<float>& vector = vectors[static_cast<size_t>(t)];
    for (float& value : vector) value = std::uniform_real_distribution<float>(-3, 3)(random);
    StoreKey(GetParam(), vector.data(), kDim, t, keys.data());
    StoreValue(GetParam(), vector.data(), kDim, t, values.data());
  }
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    const std::vector<float>& vector = vectors[static_cast<size_t>(t)];
    float largest = 0;
    for (float value : vector) largest = std::max(largest, std::abs(value));
    const std::vector<float> key = Key(keys, t), value = Value(values, t);
    for (size_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(key[d], vector[d], Tolerance() * largest);
      EXPECT_NEAR(value[d], vector[d], Tolerance() * largest);
    }
    EXPECT_EQ(key, value) << "one vector, two places";
  }
}

TEST_P(KvCodecTest, AVectorLeavesItsNeighboursAlone) {
  const std::vector<float> ones(kDim, 1), sevens(kDim, 7);
  std::vector<std::byte> keys = Head(), values = Head();
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    StoreKey(GetParam(), ones.data(), kDim, t, keys.data());
    StoreValue(GetParam(), ones.data(), kDim, t, values.data());
  }
  StoreKey(GetParam(), sevens.data(), kDim, 5, keys.data());
  StoreValue(GetParam(), sevens.data(), kDim, 5, values.data());
  // A vector of equal numbers becomes one number of each run when it is rotated: zeros then cost the most.
  const double slack = GetParam() == DType::kI4 ? 0.5 : 1e-5;
  std::vector<std::byte> alone = Head();
  StoreKey(GetParam(), ones.data(), kDim, 4, alone.data());
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    const std::vector<float> key = Key(keys, t), value = Value(values, t);
    for (size_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(key[d], t == 5 ? 7 : 1, t == 5 ? 7 * slack : slack);
      EXPECT_NEAR(value[d], t == 5 ? 7 : 1, t == 5 ? 7 * slack : slack);
    }
    EXPECT_TRUE(t == 5 || key == Key(alone, 4));
  }
}

// Every byte that a token is stored in is its own: nothing else changes when it is stored.
TEST_P(KvCodecTest, ATokensBytesAreItsOwn) {
  std::mt19937 random(4);
  std::vector<float> vector(kDim);
  for (float& x : vector) x = std::normal_distribution<float>()(random);
  std::vector<int> writers_of_keys(Head().size()), writers_of_values(Head().size());
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    for (const auto& [store, writers] :
         {std::pair{&StoreKey, &writers_of_keys}, std::pair{&StoreValue, &writers_of_values}}) {
      // Whatever was there before: a byte that differs after one of two runs is written.
      std::vector<std::byte> zeros(Head().size(), std::byte{0}), ones(Head().size(), std::byte{0xFF});
      store(GetParam(), vector.data(), kDim, t, zeros.data());
      store(GetParam(), vector.data(), kDim, t, ones.data());
      for (size_t i = 0; i < zeros.size(); ++i) {
        const bool written = zeros[i] != std::byte{0} || ones[i] != std::byte{0xFF};
        if (!written) continue;
        EXPECT_EQ(zeros[i], ones[i]) << "byte " << i << " keeps something of what was there";
        ++(*writers)[i];
      }
    }
  }
  for (size_t i = 0; i < writers_of_keys.size(); ++i) {
    const auto all = static_cast<size_t>(ScalesAt(GetParam(), kDim));
    if (i >= all && !tensor::IsScaled(GetParam())) continue;
    EXPECT_EQ(writers_of_keys[i], 1) << i;
    EXPECT_EQ(writers_of_values[i], 1) << i;
  }
}

// Scaled precisions say so with their scale, and none has integers that mean nothing.
TEST_P(KvCodecTest, WhatIsNotFiniteReadsBackAsNotFinite) {
  for (float poison : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> vector(kDim, 1);
    vector[7] = poison;
    std::vector<std::byte> keys = Head();
    StoreKey(GetParam(), vector.data(), kDim, 3, keys.data());
    const std::vector<float> key = Key(keys, 3);
    EXPECT_FALSE(std::isfinite(key[7]));
    EXPECT_EQ(std::isnan(key[0]), tensor::IsScaled(GetParam()));
  }
}

TEST_P(KvCodecTest, TheSmallestNumbersDoNotOverflowOnTheirWay) {
  const std::vector<float> vector(kDim, 1e-42f);
  std::vector<std::byte> keys = Head();
  StoreKey(GetParam(), vector.data(), kDim, 3, keys.data());
  for (const float x : Key(keys, 3)) EXPECT_NEAR(x, 0, 2e-42);
}

TEST_P(KvCodecTest, ZeroStaysZero) {
  const std::vector<float> zeros(kDim, 0);
  std::vector<std::byte> keys = Head();
  StoreKey(GetParam(), zeros.data(), kDim, 3, keys.data());
  for (const float x : Key(keys, 3)) EXPECT_EQ(x, 0);
}

INSTANTIATE_TEST_SUITE_P(All, KvCodecTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF8, DType::kI8, DType::kI4),
                         [](const auto& info) { return std::string(tensor::Name(info.param)); });

}  // namespace
}  // namespace baton::kv
