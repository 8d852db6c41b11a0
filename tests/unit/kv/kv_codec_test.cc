#include "common/kv/store/kv_codec.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton::kv {
namespace {

using tensor::DType;

constexpr int kDim = 12;

class KvCodecTest : public testing::TestWithParam<DType> {
 protected:
  // A head's keys or values of one block, which begin as bytes that mean nothing.
  std::vector<std::byte> Head() const {
    return std::vector<std::byte>(
        static_cast<size_t>(ScalesAt(GetParam(), kDim) + kBlockTokens * int64_t{sizeof(float)}),
        std::byte{0x55});
  }
  float At(const std::vector<std::byte>& head, int64_t i, int64_t token) const {
    return tensor::ValueAt(head.data(), GetParam(), i) * ScaleOf(GetParam(), kDim, head.data(), token);
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
    for (int64_t d = 0; d < kDim; ++d) {
      const float expected = vector[static_cast<size_t>(d)];
      EXPECT_NEAR(At(keys, d * kBlockTokens + t, t), expected, Tolerance() * largest);
      EXPECT_NEAR(At(values, t * kDim + d, t), expected, Tolerance() * largest);
    }
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
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(At(keys, d * kBlockTokens + t, t), t == 5 ? 7 : 1, 1e-5);
      EXPECT_NEAR(At(values, t * kDim + d, t), t == 5 ? 7 : 1, 1e-5);
    }
  }
}

TEST_P(KvCodecTest, ZeroStaysZero) {
  const std::vector<float> zeros(kDim, 0);
  std::vector<std::byte> keys = Head();
  StoreKey(GetParam(), zeros.data(), kDim, 3, keys.data());
  for (int64_t d = 0; d < kDim; ++d) EXPECT_EQ(At(keys, d * kBlockTokens + 3, 3), 0);
}

INSTANTIATE_TEST_SUITE_P(All, KvCodecTest, testing::Values(DType::kF32, DType::kBF16, DType::kF8, DType::kI8),
                         [](const auto& info) { return std::string(tensor::Name(info.param)); });

}  // namespace
}  // namespace baton::kv
