// Products of bfloat16 weights (cpu-bf16x32/1) against their definition in plain code (bf16_tiles.h): the
// same bits for every instruction set, shape, number of rows and threads, and for either kind of tiles.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/kernels/cpu/bf16_tiles.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels::cpu {
namespace {

using tensor::DType;

float Flushed(float value) { return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }

// A row's output, as bf16_tiles.h defines it.
float Defined(std::span<const float> x, std::span<const uint16_t> w, float bias) {
  const auto rounded = [&](size_t k) {
    return k < x.size() ? tensor::FromBF16(tensor::ToBF16(Flushed(x[k]))) : 0.0f;
  };
  const auto weight = [&](size_t k) { return k < w.size() ? Flushed(tensor::FromBF16(w[k])) : 0.0f; };
  float sum = bias;
  for (size_t block = 0; block < x.size(); block += 32) {
    float halves[2] = {};
    for (size_t k = 0; k < 32; ++k) {
      float& half = halves[k / 16];
      half = Flushed(std::fma(rounded(block + k), weight(block + k), half));
    }
    sum = Flushed(Flushed(sum) + Flushed(halves[0] + halves[1]));
  }
  return sum;
}

bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Numbers says how numbers are drawn.
enum class Numbers { kNormal, kWide, kTiny, kAll };

float DrawOne(Numbers kind, Random& random) {
  const float normal = random.Normals(1)[0];
  switch (kind) {
    case Numbers::kNormal:
      return normal;
    case Numbers::kWide:
      return std::ldexp(normal, static_cast<int>(random.Int(-30, 30)));
    case Numbers::kTiny:  // whose products and sums come close to 2^-126, or below
      return std::ldexp(normal, static_cast<int>(random.Int(-68, -58)));
    case Numbers::kAll: {
      const auto bits = static_cast<uint32_t>(random.Int(0, std::numeric_limits<uint32_t>::max()));
      return std::bit_cast<float>((bits & 0x7F800000u) == 0x7F800000u ? bits & 0xBFFFFFFFu : bits);
    }
  }
  return 0;
}

struct Case {
  int64_t rows, depth, features;
};

class BF16ProductTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, BF16ProductTest, testing::Values("avx2", "avx512", "avx512vnni", "amx"),
                         [](const auto& info) { return info.param; });

TEST_P(BF16ProductTest, HasTheBitsOfItsDefinition) {
  constexpr uint64_t kSeed = 51;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::string why;
  auto kernels = TryMakeCpu(GetParam(), 2, &why);
  if (kernels == nullptr) GTEST_SKIP() << why;
  Random random(kSeed);
  for (const Numbers kind : {Numbers::kNormal, Numbers::kWide, Numbers::kTiny, Numbers::kAll}) {
    for (const Case& shape : {Case{1, 64, 64}, Case{1, 37, 210}, Case{2, 31, 65}, Case{3, 96, 130},
                              Case{5, 257, 7}, Case{7, 160, 64}, Case{13, 70, 70}, Case{110, 321, 100}}) {
      std::vector<float> x(static_cast<size_t>(shape.rows * shape.depth));
      std::vector<uint16_t> w(static_cast<size_t>(shape.features * shape.depth));
      std::vector<float> bias(static_cast<size_t>(shape.features));
      for (float& value : x) value = DrawOne(kind, random);
      for (uint16_t& value : w) value = tensor::ToBF16(DrawOne(kind, random));
      for (float& value : bias) value = DrawOne(kind == Numbers::kAll ? Numbers::kWide : kind, random);
      const WeightView part = {w.data(), DType::kBF16, shape.features, shape.depth};
      const auto packed = *kernels->Pack({&part, 1});
      OwnedMatrix in = OwnedMatrix::From(x, shape.rows, shape.depth), out(shape.rows, shape.features, 3);
      kernels->MatMul(in.view(), *packed, bias, out.view());
      EXPECT_TRUE(out.GapsIntact());
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t n = 0; n < shape.features; ++n) {
          const float expected =
              Defined(std::span(x).subspan(static_cast<size_t>(r * shape.depth), shape.depth),
                      std::span(w).subspan(static_cast<size_t>(n * shape.depth), shape.depth),
                      bias[static_cast<size_t>(n)]);
          ASSERT_TRUE(Same(out.view().row(r)[n], expected))
              << out.view().row(r)[n] << " is not " << expected << ": row " << r << " of " << shape.rows
              << ", output " << n << ", depth " << shape.depth << ", numbers " << static_cast<int>(kind);
        }
      }
    }
  }
}

// Zeros that come of flushing keep their sign: -0 stays -0 where nothing but zeros of its sign is added.
TEST_P(BF16ProductTest, WhatIsFlushedKeepsItsSign) {
  std::string why;
  auto kernels = TryMakeCpu(GetParam(), 1, &why);
  if (kernels == nullptr) GTEST_SKIP() << why;
  // In each half of the block a product that is flushed to -0, and then products of -0 and of numbers that
  // are read as -0.
  std::vector<float> x(32, -0x1p-130f);
  std::vector<uint16_t> w(32, tensor::ToBF16(1.0f));
  for (const size_t k : {0, 16}) {
    x[k] = -0x1p-70f;
    w[k] = tensor::ToBF16(0x1p-70f);
    x[k + 3] = -0.0f;
  }
  const float bias = -0.0f;
  const WeightView part = {w.data(), DType::kBF16, 1, 32};
  const auto packed = *kernels->Pack({&part, 1});
  OwnedMatrix in = OwnedMatrix::From(x, 1, 32), out(1, 1);
  kernels->MatMul(in.view(), *packed, {&bias, 1}, out.view());
  EXPECT_EQ(std::bit_cast<uint32_t>(Defined(x, w, bias)), 0x80000000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(out.view().row(0)[0]), 0x80000000u);
}

TEST_P(BF16ProductTest, LeavesTheThreadsArithmeticAsItWas) {
  std::string why;
  auto kernels = TryMakeCpu(GetParam(), 1, &why);
  if (kernels == nullptr) GTEST_SKIP() << why;
  const std::vector<uint16_t> w(64);
  const WeightView part = {w.data(), DType::kBF16, 8, 8};
  const auto packed = *kernels->Pack({&part, 1});
  OwnedMatrix in(2, 8), out(2, 8);
  kernels->MatMul(in.view(), *packed, {}, out.view());
  volatile float small = 0x1p-130f;
  EXPECT_GT(small * 0.5f, 0.0f);
}

TEST_P(BF16ProductTest, ARowOfNoNumbersSpoilsNoOther) {
  std::string why;
  auto kernels = TryMakeCpu(GetParam(), 1, &why);
  if (kernels == nullptr) GTEST_SKIP() << why;
  Random random(7);
  std::vector<uint16_t> w;
  for (const float value : random.Normals(64 * 70)) w.push_back(tensor::ToBF16(value));
  const WeightView part = {w.data(), DType::kBF16, 70, 64};
  const auto packed = *kernels->Pack({&part, 1});
  std::vector<float> x = random.Normals(3 * 64);
  OwnedMatrix clean_in = OwnedMatrix::From(x, 3, 64), clean(3, 70), out(3, 70);
  kernels->MatMul(clean_in.view(), *packed, {}, clean.view());
  x[64 + 5] = std::numeric_limits<float>::quiet_NaN();
  OwnedMatrix in = OwnedMatrix::From(x, 3, 64);
  kernels->MatMul(in.view(), *packed, {}, out.view());
  for (int64_t n = 0; n < 70; ++n) {
    EXPECT_TRUE(std::isnan(out.view().row(1)[n]));
    for (const int64_t r : {0, 2}) EXPECT_TRUE(Same(out.view().row(r)[n], clean.view().row(r)[n]));
  }
  x[64 + 5] = std::numeric_limits<float>::infinity();
  in = OwnedMatrix::From(x, 3, 64);
  kernels->MatMul(in.view(), *packed, {}, out.view());
  for (int64_t n = 0; n < 70; ++n) EXPECT_FALSE(std::isfinite(out.view().row(1)[n]));
}

// A processor may have both kinds of tiles: BF16TilesFor takes the faster ones.
TEST(BF16TilesTest, OneInstructionForTwoProductsGivesTheBitsOfMultiplyAdds) {
#if defined(__x86_64__)
  if (!HasBF16Dot()) GTEST_SKIP() << "this machine has no AVX512_BF16";
  Random random(11);
  const BF16Tiles &dot = kBF16DotTiles, &adds = BF16MultiplyAddTiles(Isa::kAvx512);
  for (const int64_t cols : {64, 50}) {
    const int64_t blocks = BF16Blocks(cols);
    for (int rows = 1; rows <= BF16Tiles::kMostRows; ++rows) {
      std::vector<float> x(static_cast<size_t>(rows * cols)), begun(static_cast<size_t>(rows * kPanelRows));
      for (float& value : x) value = DrawOne(Numbers::kAll, random);
      for (float& value : begun) value = DrawOne(Numbers::kWide, random);
      std::vector<uint16_t> w(static_cast<size_t>(blocks * kBF16BlockBytes / 2));
      for (uint16_t& value : w) value = tensor::ToBF16(DrawOne(Numbers::kAll, random));
      const auto run = [&](const BF16Tiles& tiles) {
        const int64_t stride = blocks * tiles.x_block_bytes;
        std::vector<std::byte> prepared(static_cast<size_t>(rows * stride), std::byte{0xFF});
        for (int r = 0; r < rows; ++r) tiles.round(x.data() + r * cols, cols, prepared.data() + r * stride);
        std::vector<float> sums = begun;
        const auto* panel = reinterpret_cast<const std::byte*>(w.data());
        const FlushesDenormals flushes;
        tiles.by_rows[rows - 1]({.x = prepared.data(),
                                 .x_stride = stride,
                                 .w = panel,
                                 .blocks = blocks,
                                 .sums = sums.data(),
                                 .ahead = panel,
                                 .lines = 0});
        return sums;
      };
      const auto run_abreast = [&](const BF16Tiles& tiles) {
        std::vector<std::byte> prepared(static_cast<size_t>(blocks * tiles.x_block_bytes));
        tiles.round(x.data(), cols, prepared.data());
        std::vector<std::byte> panels(static_cast<size_t>(2 * blocks * kBF16BlockBytes));
        std::memcpy(panels.data(), w.data(), panels.size() / 2);
        std::memcpy(panels.data() + panels.size() / 2, w.data(), panels.size() / 2);
        std::vector<float> sums(2 * kPanelRows, begun[0]);
        const FlushesDenormals flushes;
        tiles.one_row({.x = prepared.data(),
                       .x_stride = 0,
                       .w = panels.data(),
                       .blocks = blocks,
                       .sums = sums.data(),
                       .ahead = panels.data(),
                       .lines = 0},
                      blocks * kBF16BlockBytes);
        return sums;
      };
      if (rows == 1) {
        const std::vector<float> a = run_abreast(dot), b = run_abreast(adds);
        for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(Same(a[i], b[i])) << a[i] << " " << b[i];
      }
      const std::vector<float> a = run(dot), b = run(adds);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(Same(a[i], b[i])) << a[i] << " " << b[i];
    }
  }
#endif
}

}  // namespace
}  // namespace baton::kernels::cpu
