// Products of int8 weights (cpu-i8/1) against their definition in plain code: the same bits for every
// instruction set, number of threads, batch and split of the columns over ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "engine/kernels/collective.h"
#include "tests/unit/engine/kernels/integers.h"

namespace baton::kernels {
namespace {

TEST(I8ProductTest, EveryInstructionSetBatchAndThreadCountGivesTheJudgesBits) {
  constexpr uint64_t kSeed = 61;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  constexpr int64_t kMostRows = 203;
  for (const auto& [features, depth] :
       {std::pair<int64_t, int64_t>{1, 1}, {64, 4}, {100, 301}, {192, 512}, {130, 1027}}) {
    const Integers w(features, depth, random);
    std::vector<float> x = random.Normals(kMostRows * depth);
    // Rows of very different sizes, and one value that makes all others small.
    for (int64_t r = 0; r < kMostRows; ++r) {
      const float size = std::ldexp(1.0f, static_cast<int>(random.Int(-60, 60)));
      for (int64_t k = 0; k < depth; ++k) x[static_cast<size_t>(r * depth + k)] *= size;
      if (r % 7 == 0) x[static_cast<size_t>(r * depth + random.Int(0, depth - 1))] *= 300;
    }
    const std::vector<float> bias = random.Normals(features);
    const std::vector<float> expected = Judge(x, w, {}), with_bias = Judge(x, w, bias);
    for (const char* isa : kIsas) {
      for (const int threads : {1, 3}) {
        auto kernels = TryMakeCpu(isa, threads);
        if (kernels == nullptr) continue;
        const WeightView view = w.view();
        const auto packed = *kernels->Pack({&view, 1});
        EXPECT_TRUE(packed->exact_sums());
        ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, x, {}), expected))
            << isa << " " << features << " x " << depth;
        ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, x, bias), with_bias)) << isa;
        for (int64_t rows = 1; rows <= 32; ++rows) {
          const int64_t first = random.Int(0, kMostRows - rows);
          const std::vector<float> some(x.begin() + first * depth, x.begin() + (first + rows) * depth);
          const std::vector<float> wanted(expected.begin() + first * features,
                                          expected.begin() + (first + rows) * features);
          ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, some, {}), wanted))
              << isa << ", " << rows << " rows";
        }
      }
    }
  }
}

TEST(I8ProductTest, RowsAtTheEdgesOfFloatsFollowTheRule) {
  Random random(62);
  constexpr int64_t kDepth = 70;
  const Integers w(65, kDepth, random);
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  // By hand, for a row's first values; the others are 0.
  const std::vector<std::vector<float>> rows = {
      {},
      {-0.0f},
      {1e-38f, -1e-42f},
      {std::ldexp(0.999f, -100)},
      {std::ldexp(1.0f, -100), std::ldexp(-0.5f, -100)},
      {3e38f, -3e38f, 1e38f},
      {infinity},
      {1, -infinity},
      {1, 2, nan},
      {-nan, infinity},
      // Halves go to the even integer, and what is a little less than a half goes down.
      {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 0.49999997f, -0.49999997f, 1.4999999f}};
  std::vector<float> x;
  for (const std::vector<float>& row : rows) {
    x.insert(x.end(), row.begin(), row.end());
    x.resize(x.size() + kDepth - row.size());
  }
  const std::vector<float> expected = Judge(x, w, {});
  for (const char* isa : kIsas) {
    auto kernels = TryMakeCpu(isa, 2);
    if (kernels == nullptr) continue;
    const WeightView view = w.view();
    const std::vector<float> out = Multiply(*kernels, **kernels->Pack({&view, 1}), x, {});
    for (size_t i = 0; i < out.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(out[i])) << isa << " at " << i;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected[i]))
            << isa << " at " << i;
      }
    }
    for (size_t n = 0; n < 65; ++n) EXPECT_EQ(out[n], 0) << isa;
    for (size_t n = 6 * 65; n < 10 * 65; ++n) EXPECT_TRUE(std::isnan(out[n])) << isa;
  }
}

TEST(I8ProductTest, ColumnsSplitOverRanksGiveTheBitsOfOneRank) {
  constexpr uint64_t kSeed = 63;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const int64_t features = 130, depth = 360;
  const Integers w(features, depth, random);
  const std::vector<float> bias = random.Normals(features);
  for (const int64_t rows : {1, 5, 40}) {
    const std::vector<float> x = random.Normals(rows * depth);
    const std::vector<float> expected = Judge(x, w, bias);
    for (const char* isa : kIsas) {
      for (const int ranks : {1, 2, 3, 4}) {
        if (TryMakeCpu(isa, 1) == nullptr) continue;
        const auto group = MakeInProcessGroup(ranks);
        std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) {
          threads.emplace_back([&, rank] {
            const int64_t first = rank * depth / ranks, end = (rank + 1) * depth / ranks;
            const Integers part = w.Columns(first, end - first);
            const WeightView view = part.view();
            auto kernels = TryMakeCpu(isa, 1 + rank % 2);
            const auto packed = *kernels->Pack({&view, 1});
            OwnedMatrix all = OwnedMatrix::From(x, rows, depth), out(rows, features, 2);
            kernels->MatMulSum(all.view().Columns(first, end - first), *packed, bias, out.view(),
                               *group[static_cast<size_t>(rank)]);
            EXPECT_TRUE(out.GapsIntact());
            results[static_cast<size_t>(rank)] = out.values();
          });
        }
        for (std::thread& thread : threads) thread.join();
        for (const std::vector<float>& result : results) {
          EXPECT_TRUE(SameBits(result, expected)) << isa << ", " << ranks << " ranks, " << rows << " rows";
        }
      }
    }
  }
}

TEST(I8ProductTest, TheEmbeddingIsTheNumbersOfTheRow) {
  Random random(64);
  const Integers table(70, 33, random);
  const WeightView view = table.view();
  auto kernels = TryMakeCpu("", 1);
  const auto packed = *kernels->Pack({&view, 1});
  const std::vector<TokenId> ids = {TokenId(69), TokenId(0), TokenId(70)};
  OwnedMatrix out(3, 33);
  kernels->Embed(*packed, ids, 0, out.view());
  for (int64_t c = 0; c < 33; ++c) {
    EXPECT_EQ(out.view().row(0)[c], ValueAt(view, 69, c));
    EXPECT_EQ(out.view().row(1)[c], ValueAt(view, 0, c));
    EXPECT_EQ(out.view().row(2)[c], 0);
  }
}

}  // namespace
}  // namespace baton::kernels
