// The contract that the product stands on: a row's bits depend on that row, and on the KV that it attends to,
// alone. Everything here compares bits, never tolerances.
#include <gtest/gtest.h>

#include <cmath>

#include "common/tensor/dtype.h"
#include "tests/patience.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels {
namespace {

using tensor::DType;

class BatchInvarianceTest : public testing::TestWithParam<std::string> {
 protected:
  // One kernel set per thread count; the first, with one thread, computes rows alone.
  void SetUp() override {
    for (int threads : {1, 2, 3}) {
      std::string why;
      kernels_.push_back(TryMakeCpu(GetParam(), threads, &why));
      if (kernels_.back() == nullptr) GTEST_SKIP() << why;
    }
  }
  std::vector<std::unique_ptr<Kernels>> kernels_;
};

INSTANTIATE_TEST_SUITE_P(Isa, BatchInvarianceTest,
                         testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx"),
                         [](const auto& info) { return info.param; });

TEST_P(BatchInvarianceTest, MatMulRows) {
  constexpr uint64_t kSeed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (const auto& [features, depth] : {std::pair<int64_t, int64_t>{192, 512}, {100, 300}, {640, 129}}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<float> w = random.Normals(features * depth);
      std::vector<uint16_t> halves;
      for (float value : w) halves.push_back(tensor::ToBF16(value));
      const WeightView part{dtype == DType::kF32 ? static_cast<const void*>(w.data()) : halves.data(), dtype,
                            features, depth};
      const std::vector<float> bias = random.Normals(features);
      constexpr int64_t kMaxRows = 133;
      const std::vector<float> x = random.Normals(kMaxRows * depth);
      std::vector<std::vector<float>> alone;
      auto packed = *kernels_[0]->Pack({&part, 1});
      for (int64_t r = 0; r < kMaxRows; ++r) {
        OwnedMatrix row = OwnedMatrix::From({x.begin() + r * depth, x.begin() + (r + 1) * depth}, 1, depth);
        OwnedMatrix out(1, features);
        kernels_[0]->MatMul(row.view(), *packed, bias, out.view());
        alone.push_back(out.row(0));
      }
      std::vector<int64_t> sizes = {kMaxRows, 64, 100};
      for (int64_t rows = 1; rows <= 33; ++rows) sizes.push_back(rows);
      for (auto& kernels : kernels_) {
        for (int64_t rows : sizes) {
          const int64_t first = random.Int(0, kMaxRows - rows);
          OwnedMatrix batch = OwnedMatrix::From(
              {x.begin() + first * depth, x.begin() + (first + rows) * depth}, rows, depth, 7);
          OwnedMatrix out(rows, features, 2);
          kernels->MatMul(batch.view(), *packed, bias, out.view());
          for (int64_t r = 0; r < rows; ++r) {
            ASSERT_TRUE(SameBits(out.row(r), alone[static_cast<size_t>(first + r)]))
                << "row " << r << " of " << rows << ", " << features << " x " << depth << " "
                << tensor::Name(dtype);
          }
        }
      }
    }
  }
}

TEST_P(BatchInvarianceTest, NormAndGateRows) {
  constexpr uint64_t kSeed = 22;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (int64_t cols : {24, 200, 1031, 9000}) {
    constexpr int64_t kRows = 33;
    const std::vector<float> x = random.Normals(kRows * cols * 2), weight = random.Normals(cols * 2);
    for (auto& kernels : kernels_) {
      OwnedMatrix batch = OwnedMatrix::From(x, kRows, cols * 2);
      OwnedMatrix normed(kRows, cols * 2), gated(kRows, cols), added(kRows, cols * 2);
      kernels->RmsNorm(batch.view(), weight, 1e-5f, normed.view());
      kernels->SwiGlu(batch.view(), gated.view());
      OwnedMatrix sum = OwnedMatrix::From(x, kRows, cols * 2);
      kernels->AddRmsNorm(sum.view(), batch.view(), weight, 1e-5f, added.view());
      for (int64_t r = 0; r < kRows; ++r) {
        OwnedMatrix row = OwnedMatrix::From(batch.row(r), 1, cols * 2);
        OwnedMatrix one(1, cols * 2), half(1, cols);
        kernels_[0]->RmsNorm(row.view(), weight, 1e-5f, one.view());
        ASSERT_TRUE(SameBits(normed.row(r), one.row(0)));
        kernels_[0]->SwiGlu(row.view(), half.view());
        ASSERT_TRUE(SameBits(gated.row(r), half.row(0)));
        OwnedMatrix twin = OwnedMatrix::From(batch.row(r), 1, cols * 2);
        kernels_[0]->AddRmsNorm(row.view(), twin.view(), weight, 1e-5f, one.view());
        ASSERT_TRUE(SameBits(added.row(r), one.row(0)));
      }
    }
  }
}

std::vector<LayerShape> Shapes() {
  std::vector<LayerShape> shapes;
  for (DType key : {DType::kF32, DType::kBF16}) {
    for (DType value : {DType::kF32, DType::kBF16}) {
      shapes.push_back(
          {{.heads = 4, .kv_heads = 2, .head_dim = 24, .scale = 0.2f, .window = 0}, key, value, true});
      shapes.push_back(
          {{.heads = 3, .kv_heads = 3, .head_dim = 64, .scale = 0.125f, .window = 0}, key, value, false});
      shapes.push_back(
          {{.heads = 10, .kv_heads = 1, .head_dim = 50, .scale = 0.15f, .window = 37}, key, value, false});
    }
  }
  // Integers; and with floats beside them.
  for (const auto& [key, value] : {std::pair{DType::kI8, DType::kI8},
                                   {DType::kI8, DType::kI4},
                                   {DType::kI4, DType::kI4},
                                   {DType::kBF16, DType::kI8},
                                   {DType::kI8, DType::kBF16},
                                   {DType::kI4, DType::kF32}}) {
    shapes.push_back(
        {{.heads = 4, .kv_heads = 2, .head_dim = 24, .scale = 0.2f, .window = 0}, key, value, true});
    shapes.push_back(
        {{.heads = 10, .kv_heads = 1, .head_dim = 100, .scale = 0.12f, .window = 37}, key, value, false});
    shapes.push_back(
        {{.heads = 3, .kv_heads = 1, .head_dim = 128, .scale = 0.1f, .window = 0}, key, value, false});
  }
  // Sinks, in some of each.
  for (size_t i = 0; i < shapes.size(); ++i) {
    AttentionShape& attention = shapes[i].attention;
    if (i % 3 == 1 || attention.window > 0) attention.sinks = TrialSinks(attention.heads);
  }
  return shapes;
}

TEST_P(BatchInvarianceTest, AttentionUnderAnySchedule) {
  const std::vector<uint64_t> seeds = kSanitized ? std::vector<uint64_t>{31} : std::vector<uint64_t>{31, 32};
  const std::vector<int64_t> chunks =
      kSanitized ? std::vector<int64_t>{16, 100} : std::vector<int64_t>{1, 3, 16, 64, 100};
  const int interleaved = kSanitized ? 1 : 4;
  for (const uint64_t seed : seeds) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    for (const LayerShape& shape : Shapes()) {
      const Workload work(shape, {1, 17, 64, 65, 130, 200}, random);
      // Alone, the whole prompt in one chunk, one thread.
      std::vector<Served> alone;
      for (size_t s = 0; s < work.qkv.size(); ++s) {
        alone.push_back(Serve(*kernels_[0], work, {.sequences = {s}}, random)[0]);
      }
      std::vector<Schedule> schedules;
      for (const int64_t chunk : chunks)
        schedules.push_back({.sequences = {0, 1, 2, 3, 4, 5}, .longest_chunk = chunk});
      schedules.push_back({.sequences = {5, 3, 1}});
      for (int i = 0; i < interleaved; ++i) {
        schedules.push_back({.sequences = {4, 5, 2, 0, 3, 1}, .longest_chunk = 90, .interleave = true});
      }
      for (auto& kernels : kernels_) {
        for (const Schedule& schedule : schedules) {
          const std::vector<Served> together = Serve(*kernels, work, schedule, random);
          for (size_t i = 0; i < together.size(); ++i) {
            const Served& expected = alone[schedule.sequences[i]];
            ASSERT_TRUE(SameBits(together[i].q, expected.q)) << "chunks of " << schedule.longest_chunk;
            ASSERT_TRUE(SameBits(together[i].out, expected.out)) << "chunks of " << schedule.longest_chunk;
            ASSERT_TRUE(together[i].kv == expected.kv) << "chunks of " << schedule.longest_chunk;
          }
        }
      }
    }
  }
}

// Machines whose numerics() are equal may serve one request together, so their bits must be equal too.
class IsaInvarianceTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, IsaInvarianceTest, testing::Values("avx512", "avx512vnni", "amx"),
                         [](const auto& info) { return info.param; });

TEST_P(IsaInvarianceTest, ComputesTheBitsOfAvx2) {
  constexpr uint64_t kSeed = 41;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::string why;
  auto narrow = TryMakeCpu("avx2", 2, &why);
  if (narrow == nullptr) GTEST_SKIP() << why;
  auto wide = TryMakeCpu(GetParam(), 2, &why);
  if (wide == nullptr) GTEST_SKIP() << why;
  Random random(kSeed);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const int64_t features = 210, depth = 700;
    const std::vector<float> w = random.Normals(features * depth);
    std::vector<uint16_t> halves;
    for (float value : w) halves.push_back(tensor::ToBF16(value));
    const WeightView part{dtype == DType::kF32 ? static_cast<const void*>(w.data()) : halves.data(), dtype,
                          features, depth};
    auto narrow_packed = *narrow->Pack({&part, 1});
    auto wide_packed = *wide->Pack({&part, 1});
    EXPECT_EQ(narrow->numerics(), wide->numerics());
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 16, 40}) {
      OwnedMatrix x = OwnedMatrix::From(random.Normals(rows * depth), rows, depth);
      OwnedMatrix a(rows, features), b(rows, features);
      narrow->MatMul(x.view(), *narrow_packed, {}, a.view());
      wide->MatMul(x.view(), *wide_packed, {}, b.view());
      ASSERT_TRUE(SameBits(a.values(), b.values())) << rows << " rows, " << tensor::Name(dtype);
    }
  }
  for (int64_t cols : {8, 46, 200, 1030}) {
    OwnedMatrix x = OwnedMatrix::From(random.Normals(5 * cols * 2, 5), 5, cols * 2);
    const std::vector<float> weight = random.Normals(cols * 2);
    OwnedMatrix a(5, cols * 2), b(5, cols * 2), c(5, cols), d(5, cols);
    narrow->RmsNorm(x.view(), weight, 1e-6f, a.view());
    wide->RmsNorm(x.view(), weight, 1e-6f, b.view());
    ASSERT_TRUE(SameBits(a.values(), b.values())) << cols;
    narrow->SwiGlu(x.view(), c.view());
    wide->SwiGlu(x.view(), d.view());
    ASSERT_TRUE(SameBits(c.values(), d.values())) << cols;
  }
  for (const LayerShape& shape : Shapes()) {
    const Workload work(shape, {1, 50, 170}, random);
    const std::vector<Served> a = Serve(*narrow, work, {.sequences = {0, 1, 2}, .longest_chunk = 70}, random);
    const std::vector<Served> b = Serve(*wide, work, {.sequences = {0, 1, 2}, .longest_chunk = 16}, random);
    for (size_t s = 0; s < a.size(); ++s) {
      ASSERT_TRUE(SameBits(a[s].q, b[s].q));
      ASSERT_TRUE(SameBits(a[s].out, b[s].out));
      ASSERT_TRUE(a[s].kv == b[s].kv);
    }
  }
}

// Kernels without a fused multiply-add compute other bits and say so.
TEST(BaselineTest, HasNumericsOfItsOwn) {
  auto baseline = TryMakeCpu("baseline", 1);
  ASSERT_NE(baseline, nullptr);
  auto best = TryMakeCpu("", 1);
  if (TryMakeCpu("avx2", 1) == nullptr) GTEST_SKIP() << "this machine has only the baseline";
  EXPECT_NE(baseline->numerics(), best->numerics());
}

}  // namespace
}  // namespace baton::kernels
