// The contract of every weight format of the cpu backend. A new format joins Formats() and needs no test of
// its own for what is checked here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/kernels/cpu/format.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels::cpu {
namespace {

using tensor::DType;

// Random weights in what a format takes without loss.
struct Weights {
  std::vector<float> numbers;    // [rows, cols]
  std::vector<uint16_t> halves;  // the same as bfloat16
  std::vector<int8_t> integers;  // others, with a scale per row
  std::vector<float> scales;
  std::vector<uint8_t> halves_of_bytes, factors, zeros;  // or those, on the lattice
  WeightView view;
};

Weights MakeIntegers(int64_t rows, int64_t cols, Random& random) {
  Weights weights;
  for (int64_t i = 0; i < rows * cols; ++i) {
    weights.integers.push_back(static_cast<int8_t>(random.Int(-127, 127)));
  }
  for (int64_t r = 0; r < rows; ++r) weights.scales.push_back(0.001f * static_cast<float>(random.Int(1, 99)));
  weights.view = {weights.integers.data(),
                  DType::kI8,
                  rows,
                  cols,
                  {.bits = 8, .group = cols, .scales = weights.scales.data()}};
  return weights;
}

Weights MakeLattice(int64_t rows, int64_t cols, Random& random) {
  Weights weights = MakeIntegers(rows, cols, random);
  for (int64_t i = 0; i < rows * ((cols + 1) / 2); ++i) {
    weights.halves_of_bytes.push_back(static_cast<uint8_t>(random.Int(0, 255)));
  }
  for (int64_t i = 0; i < rows * ((cols + 15) / 16); ++i) {
    weights.factors.push_back(static_cast<uint8_t>(random.Int(1, 8)));
    weights.zeros.push_back(static_cast<uint8_t>(random.Int(0, 15)));
  }
  weights.view.data = weights.halves_of_bytes.data();
  weights.view.quantization = {.bits = 4,
                               .group = 16,
                               .scales = weights.scales.data(),
                               .zeros = weights.zeros.data(),
                               .factors = weights.factors.data()};
  return weights;
}

Weights MakeWeights(const WeightFormat& format, int64_t rows, int64_t cols, Random& random) {
  if (&format == &I8Format()) return MakeIntegers(rows, cols, random);
  if (&format == &I4Format()) return MakeLattice(rows, cols, random);
  Weights weights;
  for (float value : random.Normals(rows * cols)) {
    weights.halves.push_back(tensor::ToBF16(value));
    weights.numbers.push_back(tensor::FromBF16(weights.halves.back()));
  }
  const bool narrow = &format == &BF16Format();
  const void* data = narrow ? static_cast<const void*>(weights.halves.data()) : weights.numbers.data();
  weights.view = {data, narrow ? DType::kBF16 : DType::kF32, rows, cols};
  return weights;
}

std::vector<const WeightFormat*> Formats() { return {&F32Format(), &BF16Format(), &I8Format(), &I4Format()}; }

class WeightFormatTest : public testing::TestWithParam<const WeightFormat*> {
 protected:
  const WeightFormat& format() const { return *GetParam(); }

  // The first rows of a matrix, as one panel.
  std::vector<std::byte> Pack(const Weights& weights) const {
    std::vector<std::byte> panel(static_cast<size_t>(format().PanelBytes(weights.view.cols)));
    for (int64_t r = 0; r < weights.view.rows; ++r) {
      format().PackRow(weights.view, r, panel.data(), static_cast<int>(r));
    }
    return panel;
  }
};

TEST_P(WeightFormatTest, ItIsChosenForWhatItIsMadeFor) {
  Random random(1);
  const Weights weights = MakeWeights(format(), 2, 3, random);
  EXPECT_TRUE(format().Takes(weights.view));
  EXPECT_EQ(&FormatFor({&weights.view, 1}), &format());
}

TEST_P(WeightFormatTest, EveryRowOfAPanelComesBack) {
  Random random(2);
  for (const int64_t rows : {1, 17, 40, 64}) {
    const Weights weights = MakeWeights(format(), rows, 5, random);
    const std::vector<std::byte> panel = Pack(weights);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      std::vector<float> row(5), expected(5);
      format().ReadRow(panel.data(), static_cast<int>(r), row);
      for (int64_t c = 0; c < 5 && r < rows; ++c)
        expected[static_cast<size_t>(c)] = ValueAt(weights.view, r, c);
      EXPECT_TRUE(SameBits(row, expected)) << "row " << r << " of " << rows;
    }
  }
}

TEST_P(WeightFormatTest, TheProductIsThatOfTheNumbersForEveryInstructionSet) {
  Random random(3);
  const int64_t rows = 5, depth = 37;
  for (const int width : {1, 33, 64}) {
    const Weights weights = MakeWeights(format(), width, depth, random);
    const std::vector<std::byte> packed = Pack(weights);
    std::vector<float> x = random.Normals(rows * depth);
    const std::vector<float> bias = random.Normals(width);
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAmx}) {
      if (!Supported(isa)) continue;
      OwnedMatrix out(rows, width, 3);
      const IntegerKernel* const integers = format().IntegersFor(isa);
      std::vector<std::byte> prepared;
      int64_t stride = 0;
      if (const RowKernel* const prepare = format().RowsFor(isa)) {
        stride = prepare->bytes(depth);
        prepared.resize(static_cast<size_t>(rows * stride));
        for (int64_t r = 0; r < rows; ++r) {
          prepare->write(x.data() + r * depth, depth, prepared.data() + r * stride);
        }
      }
      if (integers != nullptr) {
        // Integers of a row that holds the largest one stay what they are.
        for (float& value : x) value = std::clamp(std::round(value * 40), -127.0f, 127.0f);
        for (int64_t r = 0; r < rows; ++r) x[static_cast<size_t>(r * depth + r)] = 127;
        stride = integers->row_bytes(depth);
        prepared.resize(static_cast<size_t>(rows * stride));
        for (int64_t r = 0; r < rows; ++r) {
          const float* row = x.data() + r * depth;
          integers->quantize(row, depth, integers->largest(row, depth), prepared.data() + r * stride);
        }
      }
      // Panels begin on cache lines in the product; not here, so a format may not count on it.
      format().ProductFor(isa)({.x = x.data(),
                                .x_stride = depth,
                                .rows = rows,
                                .depth = depth,
                                .panel = packed.data(),
                                .bias = bias.data(),
                                .out = out.view().row(0),
                                .out_stride = width + 3,
                                .width = width,
                                .prepared = {prepared.data(), stride}});
      EXPECT_TRUE(out.GapsIntact());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < width; ++n) {
          // Products of bfloat16 round rows to it; their own order of sums is bf16_product_test's.
          const auto of_x = [&](int64_t k) {
            const float value = x[static_cast<size_t>(r * depth + k)];
            return &format() == &BF16Format() ? tensor::FromBF16(tensor::ToBF16(value)) : value;
          };
          double sum = bias[static_cast<size_t>(n)], size = std::abs(sum);
          for (int64_t k = 0; k < depth; ++k) {
            const double product = double{of_x(k)} * ValueAt(weights.view, n, k);
            sum += product;
            size += std::abs(product);
          }
          ASSERT_NEAR(out.view().row(r)[n], sum, size * 1e-6) << format().name() << " " << Name(isa);
        }
      }
    }
  }
}

TEST_P(WeightFormatTest, ItNamesItsNumerics) {
  EXPECT_FALSE(format().name().empty());
  EXPECT_TRUE(format().numerics(Isa::kAvx2).starts_with("cpu-"));
  EXPECT_EQ(format().numerics(Isa::kAvx2), format().numerics(Isa::kAvx512));
  EXPECT_EQ(format().numerics(Isa::kAvx2), format().numerics(Isa::kAvx512Vnni));
}

INSTANTIATE_TEST_SUITE_P(All, WeightFormatTest, testing::ValuesIn(Formats()),
                         [](const auto& info) { return std::string(info.param->name()); });

TEST(FormatForTest, WhatNoOtherTakesBecomesFloat32) {
  const WeightView narrow = {nullptr, DType::kBF16, 4, 4}, wide = {nullptr, DType::kF32, 4, 4},
                   half = {nullptr, DType::kF16, 4, 4};
  const float scale = 1;
  const WeightView quantized = {nullptr, DType::kI8, 4, 4, {.bits = 8, .group = 1, .scales = &scale}};
  EXPECT_EQ(&FormatFor(std::array{narrow, narrow}), &BF16Format());
  EXPECT_EQ(&FormatFor(std::array{narrow, wide}), &F32Format());
  EXPECT_EQ(&FormatFor(std::array{half}), &F32Format());
  EXPECT_EQ(&FormatFor(std::array{quantized}), &F32Format());
  // Integers around 0, one scale per row, and nothing beside them that is something else.
  const std::vector<float> scales(8, 1.0f);
  const uint8_t zeros[4] = {};
  WeightView integers = {nullptr, DType::kI8, 4, 4, {.bits = 8, .group = 4, .scales = scales.data()}};
  EXPECT_EQ(&FormatFor(std::array{integers}), &I8Format());
  EXPECT_EQ(&FormatFor(std::array{integers, narrow}), &F32Format());
  integers.quantization.group = 2;
  EXPECT_EQ(&FormatFor(std::array{integers}), &F32Format());
  integers.quantization = {.bits = 8, .group = 4, .scales = scales.data(), .zeros = zeros};
  EXPECT_EQ(&FormatFor(std::array{integers}), &F32Format());
  integers.quantization = {.bits = 4, .group = 4, .scales = scales.data()};
  EXPECT_EQ(&FormatFor(std::array{integers}), &F32Format());
  // The lattice of int8; groups of another size become the int8 that they stand for.
  const uint8_t factors[4] = {1, 2, 3, 4};
  integers.quantization = {
      .bits = 4, .group = 16, .scales = scales.data(), .zeros = zeros, .factors = factors};
  EXPECT_EQ(&FormatFor(std::array{integers}), &I4Format());
  integers.quantization.group = 32;
  EXPECT_EQ(&FormatFor(std::array{integers}), &I8Format());
  // Sums of so many products need not fit into 32 bits.
  integers = {nullptr, DType::kI8, 1, 70000, {.bits = 8, .group = 70000, .scales = scales.data()}};
  EXPECT_EQ(&FormatFor(std::array{integers}), &F32Format());
}

TEST(NumericsTest, TheBackendNamesTheClassesOfWhatItHasPacked) {
  const std::vector<float> w(64);
  const std::vector<uint16_t> halves(64);
  for (const char* isa : {"baseline", "avx2", "avx512", "avx512vnni", "amx"}) {
    auto kernels = TryMakeCpu(isa, 1);
    if (kernels == nullptr) continue;
    const Isa chosen = *ChooseIsa(isa);
    const std::string expected(FloatNumerics(chosen));
    EXPECT_EQ(kernels->numerics(), expected);
    const WeightView wide = {w.data(), DType::kF32, 8, 8}, narrow = {halves.data(), DType::kBF16, 8, 8};
    ASSERT_TRUE(kernels->Pack({&wide, 1}).ok());
    ASSERT_TRUE(kernels->Pack({&narrow, 1}).ok());
    const std::string both = std::string(BF16Format().numerics(chosen)) + "+" + expected;
    EXPECT_EQ(kernels->numerics(), both);
    const std::vector<int8_t> bytes(64);
    const WeightView integers = {bytes.data(), DType::kI8, 8, 8, {.bits = 8, .group = 8, .scales = w.data()}};
    ASSERT_TRUE(kernels->Pack({&integers, 1}).ok());
    EXPECT_EQ(kernels->numerics(), both + "+cpu-i8/1");
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
