// Products of integers in transformed columns (cpu-i8/2) against their definition in plain code: the same
// bits for every instruction set, number of threads, batch and split of the columns over ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "engine/kernels/collective.h"
#include "tests/unit/engine/kernels/integers.h"

namespace baton::kernels {
namespace {

// How the columns of a matrix are transformed.
struct Columns {
  int64_t block;
  std::vector<int8_t> exponents;  // or empty

  Columns(int64_t cols, bool scaled, Random& random) : Columns(cols, TransformBlock(cols), scaled, random) {}
  Columns(int64_t cols, int64_t of, bool scaled, Random& random) : block(of) {
    for (int64_t k = 0; scaled && k < cols; ++k) exponents.push_back(static_cast<int8_t>(random.Int(-7, 7)));
  }
  WeightView Of(WeightView view) const {
    view.quantization.transform = {.block = block,
                                   .exponents = exponents.empty() ? nullptr : exponents.data()};
    return view;
  }
  // H of rows of `cols` values, by its definition.
  void Mix(std::vector<float>& values) const {
    for (size_t h = 1; h < static_cast<size_t>(block); h *= 2) {
      for (size_t i = 0; i < values.size(); ++i) {
        if ((i & h) != 0) continue;
        const float low = values[i], high = values[i + h];
        values[i] = low + high;
        values[i + h] = low - high;
      }
    }
  }
  void Scale(std::vector<float>& values, int sign) const {
    for (size_t i = 0; i < values.size() && !exponents.empty(); ++i) {
      values[i] = std::ldexp(values[i], sign * exponents[i % exponents.size()]);
    }
  }
  std::vector<float> Activations(std::vector<float> x) const {
    Scale(x, -1);
    Mix(x);
    return x;
  }
  std::vector<float> Numbers(std::vector<float> u) const {
    Mix(u);
    Scale(u, -1);
    return u;
  }
};

TEST(TransformedProductTest, EveryInstructionSetBatchAndThreadCountGivesTheJudgesBits) {
  constexpr uint64_t kSeed = 81;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  constexpr int64_t kMostRows = 103;
  struct Shape {
    int64_t features, depth, block;
  };
  for (const auto& [features, depth, block] : {Shape{1, 1, 1},
                                               {64, 2, 2},
                                               {70, 64, 64},
                                               {100, 96, 32},
                                               {192, 576, 64},
                                               {130, 1040, 16},
                                               {66, 333, 1},
                                               {65, 448, 8},
                                               {65, 72, 8},
                                               {65, 64, 4}}) {
    for (const bool scaled : {false, true}) {
      const Columns columns(depth, block, scaled, random);
      const Lattice halves(features, depth, random);
      const Integers bytes(features, depth, random);
      std::vector<float> x = random.Normals(kMostRows * depth);
      for (int64_t r = 0; r < kMostRows; ++r) {
        const float size = std::ldexp(1.0f, static_cast<int>(random.Int(-60, 60)));
        for (int64_t k = 0; k < depth; ++k) x[static_cast<size_t>(r * depth + k)] *= size;
      }
      const std::vector<float> bias = random.Normals(features), in_basis = columns.Activations(x);
      for (const bool four_bits : {false, true}) {
        const WeightView view = columns.Of(four_bits ? halves.view() : bytes.view());
        const std::vector<float> expected = Judge(in_basis, four_bits ? halves.integers : bytes, bias);
        for (const char* isa : kIsas) {
          for (const int threads : {1, 3}) {
            auto kernels = TryMakeCpu(isa, threads);
            if (kernels == nullptr) continue;
            const auto packed = *kernels->Pack({&view, 1});
            const bool plain = columns.block == 1 && !scaled;
            EXPECT_TRUE(kernels->numerics().ends_with(plain ? "cpu-i8/1" : "cpu-i8/2"))
                << kernels->numerics();
            EXPECT_TRUE(packed->exact_sums());
            ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, x, bias), expected))
                << isa << " " << features << " x " << depth << (four_bits ? " of 4 bits" : "");
            for (const int64_t rows : {1, 2, 5, 9}) {
              const int64_t first = random.Int(0, kMostRows - rows);
              const std::vector<float> some(x.begin() + first * depth, x.begin() + (first + rows) * depth);
              const std::vector<float> wanted(expected.begin() + first * features,
                                              expected.begin() + (first + rows) * features);
              ASSERT_TRUE(SameBits(Multiply(*kernels, *packed, some, bias), wanted))
                  << isa << ", " << rows << " rows";
            }
          }
        }
      }
    }
  }
}

TEST(TransformedProductTest, RowsAtTheEdgesOfFloatsFollowTheRule) {
  Random random(82);
  constexpr int64_t kDepth = 64;
  const Integers w(65, kDepth, random);
  const Columns columns(kDepth, true, random);
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& values : std::vector<std::vector<float>>{
           {infinity}, {1, -infinity}, {1, 2, nan}, {3e38f, 3e38f, 3e38f, 3e38f}}) {
    std::vector<float> x = values;
    x.resize(kDepth);
    for (const char* isa : kIsas) {
      auto kernels = TryMakeCpu(isa, 2);
      if (kernels == nullptr) continue;
      const WeightView view = columns.Of(w.view());
      for (const float value : Multiply(*kernels, **kernels->Pack({&view, 1}), x, {})) {
        EXPECT_TRUE(std::isnan(value)) << isa;
      }
    }
  }
  for (const float tiny : {0.0f, -0.0f, 1e-42f, std::ldexp(1.0f, -120)}) {
    const std::vector<float> x(kDepth, tiny);
    for (const char* isa : kIsas) {
      auto kernels = TryMakeCpu(isa, 2);
      if (kernels == nullptr) continue;
      const WeightView view = columns.Of(w.view());
      for (const float value : Multiply(*kernels, **kernels->Pack({&view, 1}), x, {}))
        EXPECT_EQ(value, 0) << isa;
    }
  }
}

TEST(TransformedProductTest, ColumnsSplitOverRanksGiveTheBitsOfOneRank) {
  constexpr uint64_t kSeed = 83;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const int64_t features = 130, depth = 384;
  const Integers w(features, depth, random);
  const Columns columns(depth, true, random);
  const std::vector<float> bias = random.Normals(features);
  for (const int64_t rows : {1, 5, 40}) {
    const std::vector<float> x = random.Normals(rows * depth);
    const std::vector<float> expected = Judge(columns.Activations(x), w, bias);
    for (const char* isa : kIsas) {
      for (const int ranks : {1, 2, 3}) {
        if (TryMakeCpu(isa, 1) == nullptr) continue;
        const auto group = MakeInProcessGroup(ranks);
        std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) {
          threads.emplace_back([&, rank] {
            const int64_t first = rank * depth / ranks, count = depth / ranks;
            const Integers part = w.Columns(first, count);
            WeightView view = columns.Of(part.view());
            view.quantization.transform.exponents += first;
            auto kernels = TryMakeCpu(isa, 1 + rank % 2);
            const auto packed = *kernels->Pack({&view, 1});
            OwnedMatrix all = OwnedMatrix::From(x, rows, depth), out(rows, features, 2);
            kernels->MatMulSum(all.view().Columns(first, count), *packed, bias, out.view(),
                               *group[static_cast<size_t>(rank)]);
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

TEST(TransformedProductTest, TheEmbeddingIsTheNumbersOfTheRow) {
  Random random(84);
  for (const int64_t depth : {64, 192, 96, 33}) {
    const Lattice table(70, depth, random);
    const Columns columns(depth, true, random);
    for (const bool four_bits : {false, true}) {
      const WeightView plain = four_bits ? table.view() : table.integers.view();
      const WeightView view = columns.Of(plain);
      for (const char* isa : kIsas) {
        auto kernels = TryMakeCpu(isa, 1);
        if (kernels == nullptr) continue;
        const auto packed = *kernels->Pack({&view, 1});
        const std::vector<TokenId> ids = {TokenId(69)};
        OwnedMatrix out(1, depth);
        kernels->Embed(*packed, ids, 0, out.view());
        std::vector<float> row(static_cast<size_t>(depth));
        for (int64_t c = 0; c < depth; ++c) row[static_cast<size_t>(c)] = ValueAt(plain, 69, c);
        EXPECT_TRUE(SameBits(out.values(), columns.Numbers(row))) << isa << " " << depth;
        ReadRow(view, 69, row);
        EXPECT_TRUE(SameBits(out.values(), row)) << isa << " " << depth;
      }
    }
  }
}

// A matrix whose parts' columns are transformed in different ways is kept as the numbers that they stand for.
TEST(TransformedProductTest, PartsOfDifferentColumnsBecomeNumbers) {
  Random random(85);
  constexpr int64_t kDepth = 64;
  const Integers first(10, kDepth, random), second(7, kDepth, random);
  const Columns columns(kDepth, true, random);
  const WeightView parts[] = {first.view(), columns.Of(second.view())};
  auto kernels = TryMakeCpu("", 1);
  const auto packed = *kernels->Pack(parts);
  EXPECT_FALSE(packed->exact_sums());
  const std::vector<TokenId> ids = {TokenId(3), TokenId(12)};
  OwnedMatrix out(2, kDepth);
  kernels->Embed(*packed, ids, 0, out.view());
  std::vector<float> row(kDepth);
  for (const auto& [part, r, at] : {std::tuple{parts[0], int64_t{3}, int64_t{0}}, {parts[1], 2, 1}}) {
    ReadRow(part, r, row);
    for (int64_t c = 0; c < kDepth; ++c) EXPECT_EQ(out.view().row(at)[c], row[static_cast<size_t>(c)]);
  }
}

}  // namespace
}  // namespace baton::kernels
