#include "engine/model/quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace baton::model {
namespace {

using kernels::WeightView;
using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

WeightView ViewOf(const std::vector<float>& values, int64_t rows) {
  return {values.data(), DType::kF32, rows, static_cast<int64_t>(values.size()) / rows};
}

std::vector<int8_t> IntegersOf(const ConvertedMatrix& matrix) {
  std::vector<int8_t> integers(matrix.values.size());
  std::memcpy(integers.data(), matrix.values.data(), integers.size());
  return integers;
}

TEST(QuantizerTest, ARowIsScaledByItsLargestMagnitude) {
  Quantizer quantizer(WeightPrecision::kInt8, 1);
  // Halves go to the even integer.
  const std::vector<float> values = {-127, 0.5f,  1.5f,   -2.5f, 126.4f, 0, 0,    0,
                                     0,    -0.0f, 1e-31f, 0,     0,      0, 0.25f};
  const auto made = quantizer.Convert("m", ViewOf(values, 3), {0, 5});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(IntegersOf(*made), ElementsAre(-127, 0, 2, -2, 126, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127));
  EXPECT_THAT(made->scales, ElementsAre(1.0f, 0.0f, 0.25f / 127.0f));
  EXPECT_EQ(made->view.quantization.bits, 8);
  EXPECT_EQ(made->view.quantization.group, 5);
  EXPECT_EQ(kernels::ValueAt(made->view, 0, 3), -2.0f);
  EXPECT_EQ(kernels::ValueAt(made->view, 2, 4), 0.25f / 127.0f * 127.0f);
}

// Rows with a few columns far larger than the others.
std::vector<float> WithOutliers(int64_t rows, int64_t cols) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(random) * (i % static_cast<size_t>(cols) % 50 == 7 ? 30.0f : 1.0f);
  }
  return values;
}

double SquaredError(const ConvertedMatrix& made, const std::vector<float>& values) {
  double error = 0;
  std::vector<float> row(static_cast<size_t>(made.view.cols));
  for (int64_t r = 0; r < made.view.rows; ++r) {
    kernels::ReadRow(made.view, r, row);
    for (size_t c = 0; c < row.size(); ++c) {
      error += std::pow(row[c] - values[static_cast<size_t>(r) * row.size() + c], 2);
    }
  }
  return error;
}

TEST(QuantizerTest, TransformedColumnsLoseLessOfRowsWithOutliers) {
  constexpr int64_t kRows = 40, kCols = 192;
  const std::vector<float> values = WithOutliers(kRows, kCols);
  for (const WeightPrecision precision : {WeightPrecision::kInt8, WeightPrecision::kInt4}) {
    Quantizer plain(precision, 1), transforming(precision, 3);
    EXPECT_FALSE(plain.transforms());
    transforming.TransformColumns();
    EXPECT_TRUE(transforming.transforms());
    const auto before = plain.Convert("up_proj.weight", ViewOf(values, kRows), {0, kCols}, 64);
    const auto after = transforming.Convert("up_proj.weight", ViewOf(values, kRows), {0, kCols}, 64);
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_TRUE(before->view.quantization.transform.none());
    EXPECT_EQ(after->view.quantization.transform.block, 64);
    EXPECT_LT(SquaredError(*after, values), 0.7 * SquaredError(*before, values)) << Name(precision);
    const auto asked = transforming.Convert("up_proj.weight", ViewOf(values, kRows), {0, kCols});
    EXPECT_EQ(asked->values, before->values);
    EXPECT_TRUE(asked->view.quantization.transform.none());
  }
  Quantizer halves(WeightPrecision::kBF16, 1);
  halves.TransformColumns();
  EXPECT_FALSE(halves.transforms());
}

TEST(QuantizerTest, ASplitOfTransformedColumnsCutsNoBlock) {
  constexpr int64_t kRows = 20, kCols = 192;
  const std::vector<float> values = WithOutliers(kRows, kCols);
  for (const WeightPrecision precision : {WeightPrecision::kInt8, WeightPrecision::kInt4}) {
    Quantizer quantizer(precision, 2);
    ColumnExponents exponents;
    std::vector<int8_t> of_columns(kCols);
    for (size_t k = 0; k < of_columns.size(); ++k) of_columns[k] = static_cast<int8_t>(k % 3) - 1;
    const std::string names[] = {"gate_proj.weight", "up_proj.weight"};
    exponents.Set(names, of_columns);
    quantizer.TransformColumns(exponents);
    const auto whole = quantizer.Convert("up_proj.weight", ViewOf(values, kRows), {0, kCols}, 32);
    const auto right = quantizer.Convert("up_proj.weight", ViewOf(values, kRows), {96, 96}, 32);
    ASSERT_TRUE(whole.ok() && right.ok());
    EXPECT_EQ(whole->scales, right->scales);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < 96; ++c) {
        ASSERT_EQ(kernels::ValueAt(right->view, r, c), kernels::ValueAt(whole->view, r, 96 + c));
      }
      std::vector<float> all(kCols), part(96);
      kernels::ReadRow(whole->view, r, all);
      kernels::ReadRow(right->view, r, part);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 96))
          << "its exponents are those of its columns";
    }
    // The scale of a row leaves its numbers where they were.
    const double bound = precision == WeightPrecision::kInt8 ? 2e-2 : 0.2;
    double size = 0;
    for (const float value : values) size += double{value} * value;
    EXPECT_LT(std::sqrt(SquaredError(*whole, values) / size), bound);
    const absl::Status cut =
        quantizer.Convert("up_proj.weight", ViewOf(values, kRows), {96, 96}, 64).status();
    EXPECT_TRUE(absl::IsInvalidArgument(cut)) << cut;
    EXPECT_THAT(std::string(cut.message()), HasSubstr("96 of its 192 columns"));
  }
}

TEST(QuantizerTest, ColumnsOfASplitAreThoseOfTheWhole) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr int64_t kRows = 70, kCols = 24;
  std::vector<float> values(kRows * kCols);
  for (float& value : values) value = normal(random);
  for (const WeightPrecision precision :
       {WeightPrecision::kInt8, WeightPrecision::kBF16, WeightPrecision::kF32}) {
    Quantizer one(precision, 1), three(precision, 3);
    const auto whole = one.Convert("m", ViewOf(values, kRows), {0, kCols});
    const auto right = three.Convert("m", ViewOf(values, kRows), {16, 8});
    ASSERT_TRUE(whole.ok() && right.ok());
    EXPECT_EQ(whole->scales, right->scales);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < 8; ++c) {
        ASSERT_EQ(kernels::ValueAt(right->view, r, c), kernels::ValueAt(whole->view, r, 16 + c));
        const float bound = precision == WeightPrecision::kInt8   ? whole->scales[static_cast<size_t>(r)] / 2
                            : precision == WeightPrecision::kBF16 ? 0.02f
                                                                  : 0.0f;
        ASSERT_NEAR(kernels::ValueAt(right->view, r, c), values[static_cast<size_t>(r * kCols + 16 + c)],
                    bound * 1.0001f);
      }
    }
  }
}

TEST(QuantizerTest, ItReadsWhatFilesStoreAndChangesWhatDiffers) {
  Quantizer stored(WeightPrecision::kStored, 1), narrow(WeightPrecision::kBF16, 1),
      integers(WeightPrecision::kInt8, 1), halves(WeightPrecision::kInt4, 1);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_FALSE(stored.Changes(dtype, "w"));
    EXPECT_EQ(narrow.Changes(dtype, "w"), dtype != DType::kBF16);
    EXPECT_TRUE(integers.Changes(dtype, "w"));
    EXPECT_TRUE(halves.Changes(dtype, "w"));
  }
  // 1, -2 and 0.5, as bfloat16 and as float16, at an odd address.
  for (const auto& [dtype, bits] :
       {std::pair<DType, std::array<uint16_t, 3>>{DType::kBF16, {0x3F80, 0xC000, 0x3F00}},
        {DType::kF16, {0x3C00, 0xC000, 0x3800}}}) {
    std::vector<std::byte> bytes(1 + sizeof bits);
    std::memcpy(bytes.data() + 1, bits.data(), sizeof bits);
    const auto made = integers.Convert("m", {bytes.data() + 1, dtype, 1, 3}, {0, 3});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_THAT(IntegersOf(*made), ElementsAre(64, -127, 32)) << tensor::Name(dtype);
    const auto half = narrow.Convert("m", {bytes.data() + 1, dtype, 1, 3}, {0, 3});
    ASSERT_TRUE(half.ok()) << half.status();
    for (int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(kernels::ValueAt(half->view, 0, c), tensor::ValueAt(bytes.data() + 1, dtype, c));
    }
  }
}

TEST(QuantizerTest, FourBitsAreThoseOfTheLatticeForAnySplit) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  constexpr int64_t kRows = 35, kCols = 75;
  std::vector<float> values(kRows * kCols);
  for (float& value : values) value = normal(random);
  Quantizer one(WeightPrecision::kInt4, 1), three(WeightPrecision::kInt4, 3);
  const auto whole = one.Convert("layers.0.mlp.up_proj.weight", ViewOf(values, kRows), {0, kCols});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->view.quantization.lattice());
  EXPECT_EQ(whole->view.quantization.group, 16);
  EXPECT_EQ(std::ssize(whole->values), kRows * 38);
  double error = 0, size = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const float number = values[static_cast<size_t>(r * kCols + c)];
      error += std::pow(kernels::ValueAt(whole->view, r, c) - number, 2);
      size += number * number;
    }
  }
  EXPECT_LT(std::sqrt(error / size), 0.08);
  // A split at a group keeps 4 bits; another one has the int8 weights of the same numbers.
  for (const Range own : {Range{32, 43}, Range{48, 7}, Range{5, 40}, Range{24, 51}}) {
    const auto part = three.Convert("layers.0.mlp.up_proj.weight", ViewOf(values, kRows), own);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(part->view.quantization.bits, own.begin % 16 == 0 ? 4 : 8);
    EXPECT_EQ(part->scales, whole->scales);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < own.count; ++c) {
        ASSERT_EQ(kernels::ValueAt(part->view, r, c), kernels::ValueAt(whole->view, r, own.begin + c));
      }
    }
  }
}

TEST(QuantizerTest, TheRecipeLeavesSomeMatricesInInt8) {
  EXPECT_EQ(PrecisionFor(WeightPrecision::kInt4, "lm_head.weight"), WeightPrecision::kInt8);
  EXPECT_EQ(PrecisionFor(WeightPrecision::kInt4, "model.embed_tokens.weight"), WeightPrecision::kInt8);
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    EXPECT_EQ(
        PrecisionFor(WeightPrecision::kInt4, std::string("model.layers.3.self_attn.") + part + ".weight"),
        WeightPrecision::kInt8);
  }
  EXPECT_EQ(PrecisionFor(WeightPrecision::kInt4, "model.layers.3.mlp.up_proj.weight"),
            WeightPrecision::kInt4);
  EXPECT_EQ(PrecisionFor(WeightPrecision::kBF16, "lm_head.weight"), WeightPrecision::kBF16);
  Quantizer quantizer(WeightPrecision::kInt4, 1);
  const std::vector<float> values = {1, 2, 3, 4};
  const auto head = quantizer.Convert("lm_head.weight", ViewOf(values, 2), {0, 2});
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->view.quantization.bits, 8);
}

TEST(QuantizerTest, ItReportsWhatIsConverted) {
  Quantizer quantizer(WeightPrecision::kInt8, 1);
  std::vector<std::pair<int64_t, int64_t>> reports;
  quantizer.Report([&](int64_t done, int64_t all) { reports.emplace_back(done, all); });
  quantizer.Expect(24);
  const std::vector<float> values(12, 1.0f);
  // A part of the columns counts as all: their rows are read.
  ASSERT_TRUE(quantizer.Convert("m", ViewOf(values, 3), {0, 4}).ok());
  ASSERT_TRUE(quantizer.Convert("m", ViewOf(values, 2), {0, 3}).ok());
  // One that is made a second time is nothing more.
  ASSERT_TRUE(quantizer.Convert("m", ViewOf(values, 2), {0, 3}).ok());
  using Report = std::pair<int64_t, int64_t>;
  EXPECT_THAT(reports, ElementsAre(Report{12, 24}, Report{24, 24}, Report{24, 24}));
}

TEST(QuantizerTest, WhatCantBeAnIntegerIsRefused) {
  Quantizer quantizer(WeightPrecision::kInt8, 3);
  std::vector<float> values(100 * 2, 1.0f);
  values[2 * 90] = std::numeric_limits<float>::infinity();
  values[2 * 31 + 1] = std::numeric_limits<float>::quiet_NaN();
  const auto made = quantizer.Convert("m", ViewOf(values, 100), {0, 2});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("row 31 holds"));
  const std::vector<float> wide(70000);
  EXPECT_THAT(std::string(quantizer.Convert("m", ViewOf(wide, 1), {0, 10}).status().message()),
              HasSubstr("rows of at most 66311 values, not 70000"));
}

TEST(QuantizerTest, PrecisionsHaveTheNamesOfTheFlag) {
  EXPECT_EQ(Name(WeightPrecision::kStored), "stored");
  EXPECT_EQ(Name(WeightPrecision::kF32), "f32");
  EXPECT_EQ(Name(WeightPrecision::kBF16), "bf16");
  EXPECT_EQ(Name(WeightPrecision::kInt8), "int8");
  EXPECT_EQ(Name(WeightPrecision::kInt4), "int4");
}

}  // namespace
}  // namespace baton::model
