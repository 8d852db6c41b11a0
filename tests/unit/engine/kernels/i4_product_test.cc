// Products of 4-bit weights on the lattice of int8: the bits of the int8 weights that they stand for, for
// every instruction set, number of threads, batch and split of the columns over ranks.
#include <gtest/gtest.h>

#include <thread>

#include "engine/kernels/collective.h"
#include "tests/unit/engine/kernels/integers.h"

namespace baton::kernels {
namespace {

TEST(I4ProductTest, EveryInstructionSetBatchAndThreadCountGivesTheBitsOfInt8) {
  constexpr uint64_t kSeed = 71;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  constexpr int64_t kMostRows = 120;
  for (const auto& [features, depth] :
       {std::pair<int64_t, int64_t>{1, 1}, {64, 32}, {100, 301}, {130, 1056}}) {
    const Lattice w(features, depth, random);
    std::vector<float> x = random.Normals(kMostRows * depth);
    // Rows of integers at the ends of their range, of one sign: the largest sums.
    for (int64_t k = 0; k < depth; ++k) x[static_cast<size_t>(k)] = 1, x[static_cast<size_t>(depth + k)] = -1;
    const std::vector<float> bias = random.Normals(features);
    const std::vector<float> expected = Judge(x, w.integers, {}), with_bias = Judge(x, w.integers, bias);
    for (const char* isa : kIsas) {
      for (const int threads : {1, 3}) {
        auto kernels = TryMakeCpu(isa, threads);
        if (kernels == nullptr) continue;
        const WeightView view = w.view();
        const auto packed = *kernels->Pack({&view, 1});
        EXPECT_TRUE(packed->exact_sums());
        // Half of a byte for each weight of whole panels and groups, and little beside.
        const int64_t panels = (features + 63) / 64, blocks = (depth + 31) / 32;
        EXPECT_EQ(packed->bytes(), panels * (blocks * 64 * 18 + 64 * 4));
        ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, x, {}), expected))
            << isa << " " << features << " x " << depth;
        ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, x, bias), with_bias)) << isa;
        for (int64_t rows = 1; rows <= 20; ++rows) {
          const int64_t first = rows <= 2 ? rows - 1 : random.Int(0, kMostRows - rows);
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

TEST(I4ProductTest, BesideInt8ItBecomesInt8WithTheSameBits) {
  Random random(72);
  const int64_t depth = 70, rows = 7;
  const Lattice w(40, depth, random);
  const Integers other(30, depth, random);
  const std::vector<float> x = random.Normals(rows * depth);
  const std::vector<float> above = Judge(x, w.integers, {}), below = Judge(x, other, {});
  for (const char* isa : kIsas) {
    auto kernels = TryMakeCpu(isa, 1);
    if (kernels == nullptr) continue;
    const std::array views = {w.view(), other.view()};
    const auto packed = *kernels->Pack(views);
    const std::vector<float> out = Multiply(*kernels, *packed, x, {});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < 70; ++n) {
        const float expected =
            n < 40 ? above[static_cast<size_t>(r * 40 + n)] : below[static_cast<size_t>(r * 30 + n - 40)];
        ASSERT_EQ(out[static_cast<size_t>(r * 70 + n)], expected) << isa;
      }
    }
  }
}

TEST(I4ProductTest, ColumnsSplitOverRanksGiveTheBitsOfOneRank) {
  constexpr uint64_t kSeed = 73;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const int64_t features = 130, left = 96, depth = 200;
  const Lattice first(features, left, random), second(features, depth - left, random);
  // A row has one scale, whatever the rank.
  Integers whole(features, depth, random);
  for (int64_t r = 0; r < features; ++r) {
    for (int64_t c = 0; c < depth; ++c) {
      whole.values[static_cast<size_t>(r * depth + c)] =
          c < left ? first.integers.values[static_cast<size_t>(r * left + c)]
                   : second.integers.values[static_cast<size_t>(r * (depth - left) + c - left)];
    }
  }
  whole.scales = first.integers.scales;
  const std::vector<float> bias = random.Normals(features);
  for (const int64_t rows : {1, 5, 40}) {
    const std::vector<float> x = random.Normals(rows * depth);
    const std::vector<float> expected = Judge(x, whole, bias);
    for (const char* isa : kIsas) {
      if (TryMakeCpu(isa, 1) == nullptr) continue;
      const auto group = MakeInProcessGroup(2);
      std::array<std::vector<float>, 2> results;
      std::vector<std::thread> threads;
      for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
          WeightView view = rank == 0 ? first.view() : second.view();
          view.quantization.scales = whole.scales.data();
          auto kernels = TryMakeCpu(isa, 1);
          const auto packed = *kernels->Pack({&view, 1});
          OwnedMatrix all = OwnedMatrix::From(x, rows, depth), out(rows, features, 2);
          kernels->MatMulSum(all.view().Columns(rank == 0 ? 0 : left, view.cols), *packed, bias, out.view(),
                             *group[static_cast<size_t>(rank)]);
          results[static_cast<size_t>(rank)] = out.values();
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const std::vector<float>& result : results) {
        EXPECT_TRUE(SameBits(result, expected)) << isa << ", " << rows << " rows";
      }
    }
  }
}

TEST(I4ProductTest, TheEmbeddingIsTheNumbersOfTheRow) {
  Random random(74);
  const Lattice table(70, 45, random);
  const WeightView view = table.view();
  auto kernels = TryMakeCpu("", 1);
  const auto packed = *kernels->Pack({&view, 1});
  const std::vector<TokenId> ids = {TokenId(69), TokenId(0), TokenId(70)};
  OwnedMatrix out(3, 45);
  kernels->Embed(*packed, ids, 0, out.view());
  for (int64_t c = 0; c < 45; ++c) {
    EXPECT_EQ(out.view().row(0)[c], ValueAt(table.integers.view(), 69, c));
    EXPECT_EQ(out.view().row(1)[c], ValueAt(view, 0, c));
    EXPECT_EQ(out.view().row(2)[c], 0);
  }
}

}  // namespace
}  // namespace baton::kernels
