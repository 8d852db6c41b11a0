// The cuda backend's operations, but for attention, against the reference on random shapes.
#include <gmock/gmock.h>

#include "tests/gpu/gpu.h"

namespace baton::gpu {
namespace {

using kernels::Matrix;
using kernels::WeightView;
using tensor::DType;

constexpr uint32_t kKernelsSeed = 71;

class KernelsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    cuda_ = MakeKernels();
    ASSERT_NE(cuda_, nullptr) << "these tests need a GPU";
  }
  kernels::Values Place(const std::vector<float>& values) {
    auto placed = kernels::Values::Place(values, cuda_->memory());
    EXPECT_TRUE(placed.ok()) << placed.status();
    return *std::move(placed);
  }
  static Matrix Host(std::vector<float>& values, int64_t rows, int64_t cols) {
    return {values.data(), rows, cols, cols};
  }

  std::mt19937 random_{kKernelsSeed};
  std::unique_ptr<kernels::Kernels> cuda_;
  std::unique_ptr<kernels::Kernels> judge_ = kernels::MakeReferenceKernels();
};

TEST_F(KernelsGpuTest, MatMul) {
  for (const auto& [rows, depth, features] : {std::tuple<int64_t, int64_t, int64_t>{1, 256, 768},
                                              {3, 448, 256},
                                              {17, 4096, 1024},
                                              {64, 512, 2048},
                                              {129, 1024, 6144},
                                              {700, 256, 896}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << depth << " x " << features << ", seed "
                                    << kKernelsSeed);
    auto x = Rounded(Normals(random_, rows * depth));
    const auto w = Rounded(Normals(random_, features * depth, 1 / std::sqrt(static_cast<float>(depth))));
    std::vector<uint16_t> halves;
    for (float value : w) halves.push_back(tensor::ToBF16(value));
    const auto bias = Normals(random_, features);
    const int64_t upper = features / 3 / 8 * 8;
    const WeightView parts[] = {{halves.data(), DType::kBF16, upper, depth},
                                {halves.data() + upper * depth, DType::kBF16, features - upper, depth}};
    std::vector<float> expected(static_cast<size_t>(rows * features));
    judge_->MatMul(Host(x, rows, depth), **judge_->Pack(parts), bias, Host(expected, rows, features));
    auto packed = cuda_->Pack(parts);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ((*packed)->bytes(), features * depth * 2);
    DeviceMatrix in(cuda_->memory(), x, rows, depth, DType::kBF16);
    DeviceMatrix out(cuda_->memory(), rows, features, DType::kBF16);
    cuda_->MatMul(in.view(), **packed, Place(bias).view(), out.view());
    // The product is rounded, then the sum with the bias.
    ExpectNear(out.values(), expected, 0.02f, 2 * kOneRounding, "with bias");
    std::vector<float> plain(expected.size());
    judge_->MatMul(Host(x, rows, depth), **judge_->Pack(parts), {}, Host(plain, rows, features));
    DeviceMatrix wide(cuda_->memory(), rows, features, DType::kF32);
    cuda_->MatMul(in.view(), **packed, {}, wide.view());
    ExpectNear(wide.values(), plain, 1e-4f, 1e-4f, "to float32");
    // A rank's columns of the logits begin where those of the ranks before it end.
    for (const int64_t first : {1, 2}) {
      DeviceMatrix all(cuda_->memory(), rows, features + first, DType::kF32);
      cuda_->MatMul(in.view(), **packed, {}, all.view().Columns(first, features));
      const std::vector<float> got = all.values();
      std::vector<float> own;
      for (int64_t r = 0; r < rows; ++r) {
        const auto row = got.begin() + r * (features + first);
        for (int64_t c = 0; c < first; ++c) EXPECT_EQ(row[c], 0) << "another rank's";
        own.insert(own.end(), row + first, row + first + features);
      }
      ExpectNear(own, plain, 1e-4f, 1e-4f, "into columns");
    }
  }
}

TEST_F(KernelsGpuTest, WeightsInFloat32AreRoundedToBf16) {
  const auto w = Normals(random_, 16 * 8);
  const WeightView part{w.data(), DType::kF32, 16, 8};
  auto packed = cuda_->Pack({&part, 1});
  ASSERT_TRUE(packed.ok()) << packed.status();
  DeviceMatrix out(cuda_->memory(), 2, 8, DType::kF32);
  const std::vector<TokenId> ids = {TokenId(15), TokenId(3)};
  cuda_->Embed(**packed, ids, 0, out.view());
  std::vector<float> expected;
  for (int row : {15, 3}) expected.insert(expected.end(), w.begin() + row * 8, w.begin() + row * 8 + 8);
  EXPECT_EQ(out.values(), Rounded(expected));
}

TEST_F(KernelsGpuTest, RefusesRowsThatTensorCoresCantTake) {
  const auto w = Normals(random_, 4 * 7);
  const WeightView part{w.data(), DType::kF32, 4, 7};
  EXPECT_EQ(cuda_->Pack({&part, 1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KernelsGpuTest, EmbedGivesZerosForOtherRanksTokens) {
  const auto w = Rounded(Normals(random_, 50 * 256));
  const WeightView part{w.data(), DType::kF32, 50, 256};
  auto packed = cuda_->Pack({&part, 1});
  ASSERT_TRUE(packed.ok()) << packed.status();
  std::vector<TokenId> ids;
  for (int i = 0; i < 333; ++i) ids.emplace_back(static_cast<int32_t>(random_() % 200));
  std::vector<float> expected(333 * 256);
  judge_->Embed(**judge_->Pack({&part, 1}), ids, 70, Host(expected, 333, 256));
  DeviceMatrix out(cuda_->memory(), 333, 256, DType::kF32);
  cuda_->Embed(**packed, ids, 70, out.view());
  EXPECT_EQ(out.values(), expected);
}

TEST_F(KernelsGpuTest, RmsNormAndItsSum) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 256}, {5, 4096}, {300, 192}, {2, 8192}, {3, 1001}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", seed " << kKernelsSeed);
    auto x = Normals(random_, rows * cols, 3);
    auto y = Rounded(Normals(random_, rows * cols));
    const auto weight = Normals(random_, cols);
    DeviceMatrix residual(cuda_->memory(), x, rows, cols, DType::kF32);
    DeviceMatrix delta(cuda_->memory(), y, rows, cols, DType::kBF16);
    DeviceMatrix out(cuda_->memory(), rows, cols, DType::kBF16);
    std::vector<float> expected(x.size());
    cuda_->RmsNorm(residual.view(), Place(weight).view(), 1e-5f, out.view());
    judge_->RmsNorm(Host(x, rows, cols), weight, 1e-5f, Host(expected, rows, cols));
    ExpectNear(out.values(), expected, 1e-6f, kOneRounding, "norm");
    cuda_->AddRmsNorm(residual.view(), delta.view(), Place(weight).view(), 1e-5f, out.view());
    judge_->AddRmsNorm(Host(x, rows, cols), Host(y, rows, cols), weight, 1e-5f, Host(expected, rows, cols));
    EXPECT_EQ(residual.values(), x) << "one float32 addition each";
    ExpectNear(out.values(), expected, 1e-6f, kOneRounding, "sum and norm");
  }
}

TEST_F(KernelsGpuTest, SwiGlu) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 448}, {77, 1376}, {4, 14336}, {3, 203}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << width << ", seed " << kKernelsSeed);
    auto in = Rounded(Normals(random_, rows * 2 * width, 3));
    std::vector<float> expected(static_cast<size_t>(rows * width));
    judge_->SwiGlu(Host(in, rows, 2 * width), Host(expected, rows, width));
    DeviceMatrix gate_up(cuda_->memory(), in, rows, 2 * width, DType::kBF16);
    DeviceMatrix out(cuda_->memory(), rows, width, DType::kBF16);
    cuda_->SwiGlu(gate_up.view(), out.view());
    ExpectNear(out.values(), expected, 1e-6f, kOneRounding, "SwiGLU");
  }
}

TEST_F(KernelsGpuTest, GatherRows) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const auto x = Rounded(Normals(random_, 90 * 264));
    const std::vector<int64_t> rows = {0, 5, 6, 41, 89};
    DeviceMatrix from(cuda_->memory(), x, 90, 264, dtype), to(cuda_->memory(), 5, 264, dtype);
    cuda_->GatherRows(from.view(), rows, to.view());
    std::vector<float> expected;
    for (int64_t row : rows)
      expected.insert(expected.end(), x.begin() + row * 264, x.begin() + row * 264 + 264);
    EXPECT_EQ(to.values(), expected);
  }
}

}  // namespace
}  // namespace baton::gpu
