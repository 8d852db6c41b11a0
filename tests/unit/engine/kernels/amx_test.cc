// Products by tiles of AMX (amx_tiles.h): how they are cut, by tiles in plain code on every machine, and the
// processor's own where it has them. And what a process says if it can't use them.
#include "engine/kernels/cpu/amx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/kernels/cpu/amx_tiles.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels::cpu {
namespace {

using ::testing::HasSubstr;

// Answers of a machine, step by step.
struct Machine {
  bool there = true;
  int error = 0;
  bool right = true, keeps = true, faster = true;

  AmxState Try() const {
    return TryAmx({.there = [this] { return there; },
                   .request = [this] { return error; },
                   .right = [this] { return right; },
                   .keeps = [this] { return keeps; },
                   .faster = [this] { return faster; }});
  }
};

TEST(AmxTest, IsUsedSilentlyWhereAllIsWell) {
  const AmxState state = Machine().Try();
  EXPECT_TRUE(state.usable);
  EXPECT_TRUE(state.faster);
  EXPECT_EQ(state.warning, "");
}

TEST(AmxTest, AMachineWithoutItIsNoReasonForAWarning) {
  const AmxState state = Machine{.there = false, .error = EPERM}.Try();
  EXPECT_FALSE(state.usable);
  EXPECT_EQ(state.warning, "");
}

TEST(AmxTest, SaysWhyItIsNotUsed) {
  for (const auto& [machine, why] :
       {std::pair<Machine, const char*>{{.error = EPERM}, "arch_prctl: Operation not permitted"},
        {{.right = false}, "wrong"},
        {{.keeps = false}, "preempted"}}) {
    const AmxState state = machine.Try();
    EXPECT_FALSE(state.usable) << why;
    EXPECT_FALSE(state.faster) << why;
    EXPECT_THAT(state.warning, HasSubstr(why));
    EXPECT_THAT(state.warning, HasSubstr("AVX-512"));
  }
}

TEST(AmxTest, SlowTilesAreUsedByNameAlone) {
  const AmxState state = Machine{.faster = false}.Try();
  EXPECT_TRUE(state.usable);
  EXPECT_FALSE(state.faster);
  EXPECT_THAT(state.warning, HasSubstr("slower"));
}

TEST(AmxTest, AProcessTriesOnce) { EXPECT_EQ(&Amx(), &Amx()); }

#if defined(__x86_64__)

// Tiles in plain code. Like the processor's, they have rows and bytes that a configuration gives them, zeros
// where it was new, and refuse to be used without one.
struct PlainTile {
  int rows = 0;
  std::byte bytes[kTileRows][kTileRowBytes] = {};
};
struct PlainTiles {
  static inline PlainTile tiles[8];

  static void Configure(int a, int b) { SetRows({a, a, b, b, a, b, kTileRows, kTileRows}); }
  static void ConfigureWide(int a) { SetRows({a, a, a, a, a, kTileRows, kTileRows, kTileRows}); }
  static void Release() { SetRows({0, 0, 0, 0, 0, 0, 0, 0}); }
  template <int kTile>
  static void Load(const std::byte* from, int64_t stride) {
    ASSERT_GT(tiles[kTile].rows, 0);
    for (int r = 0; r < tiles[kTile].rows; ++r) {
      std::memcpy(tiles[kTile].bytes[r], from + r * stride, kTileRowBytes);
    }
  }
  template <int kTile>
  static void Store(std::byte* to, int64_t stride) {
    ASSERT_GT(tiles[kTile].rows, 0);
    for (int r = 0; r < tiles[kTile].rows; ++r) {
      std::memcpy(to + r * stride, tiles[kTile].bytes[r], kTileRowBytes);
    }
  }

 private:
  static void SetRows(std::array<int, 8> rows) {
    for (size_t t = 0; t < rows.size(); ++t) tiles[t] = {.rows = rows[t], .bytes = {}};
  }
};

// TDPBSUD, by Intel's manual.
struct PlainByteTiles : PlainTiles {
  template <int kSums, int kX, int kPanel>
  static void Multiply() {
    ASSERT_EQ(tiles[kSums].rows, tiles[kX].rows);
    ASSERT_EQ(tiles[kPanel].rows, kTileRows);
    for (int r = 0; r < tiles[kX].rows; ++r) {
      for (int n = 0; n < 16; ++n) {
        int32_t sum;
        std::memcpy(&sum, tiles[kSums].bytes[r] + n * 4, sizeof sum);
        for (int k = 0; k < 16; ++k) {
          for (int i = 0; i < 4; ++i) {
            sum += static_cast<int8_t>(tiles[kX].bytes[r][k * 4 + i]) *
                   std::to_integer<int>(tiles[kPanel].bytes[k][n * 4 + i]);
          }
        }
        std::memcpy(tiles[kSums].bytes[r] + n * 4, &sum, sizeof sum);
      }
    }
  }
};

struct Operands {
  int64_t rows, steps, x_stride;
  std::vector<std::byte> x, panel;
  std::vector<int32_t> begin;

  Operands(int64_t rows, int64_t steps, Random& random)
      : rows(rows), steps(steps), x_stride(steps * kTileRowBytes + random.Int(0, 70)) {
    for (int64_t i = 0; i < rows * x_stride; ++i) x.push_back(std::byte(random.Int(0, 255)));
    for (int64_t i = 0; i < steps * kTileStepBytes; ++i) panel.push_back(std::byte(random.Int(0, 255)));
    for (int64_t i = 0; i < rows * kPanelRows; ++i)
      begin.push_back(static_cast<int32_t>(random.Int(-999, 999)));
  }
  // A row that the product may not write begins with this.
  static constexpr int32_t kUntouched = 0x5A5A5A5A;
  template <typename Product>
  std::vector<int32_t> Run(const Product& product) const {
    std::vector<int32_t> sums = begin;
    sums.insert(sums.end(), kPanelRows, kUntouched);
    product(TileProduct{.x = x.data(),
                        .x_stride = x_stride,
                        .rows = rows,
                        .panel = panel.data(),
                        .steps = steps,
                        .sums = reinterpret_cast<std::byte*>(sums.data()),
                        .ahead = panel.data(),
                        .ahead_step = kTileStepBytes});
    return sums;
  }
  std::vector<int32_t> Expected() const {
    std::vector<int32_t> sums = begin;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < kPanelRows; ++n) {
        for (int64_t k = 0; k < steps * kTileRowBytes; ++k) {
          sums[static_cast<size_t>(r * kPanelRows + n)] +=
              static_cast<int8_t>(x[static_cast<size_t>(r * x_stride + k)]) *
              std::to_integer<int>(panel[static_cast<size_t>(k / 4 * 4 * kPanelRows + n * 4 + k % 4)]);
        }
      }
    }
    sums.insert(sums.end(), kPanelRows, kUntouched);
    return sums;
  }
};

TEST(TileProductTest, EveryNumberOfRowsIsCutIntoTilesThatCoverIt) {
  constexpr uint64_t kSeed = 71;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (int64_t rows = 1; rows <= 100; ++rows) {
    const Operands operands(rows, random.Int(1, 5), random);
    const std::vector<int32_t> expected = operands.Expected();
    ASSERT_EQ(operands.Run(TileRows<PlainByteTiles>::Multiply), expected) << rows << " rows";
    if (!Amx().usable) continue;
    ASSERT_EQ(operands.Run(MultiplyByteTiles), expected) << rows << " rows, by the processor";
  }
}

TEST(TileProductTest, TilesAreReleasedAfterwards) {
  Random random(72);
  for (const int64_t rows : {3, 20, 32, 40, 60}) {
    Operands(rows, 1, random).Run(TileRows<PlainByteTiles>::Multiply);
    for (const PlainTile& tile : PlainTiles::tiles) EXPECT_EQ(tile.rows, 0) << rows;
  }
}

TEST(TileProductTest, NumbersHeldInTilesAreFoundThere) {
  if (!Amx().usable) GTEST_SKIP() << "this process has no AMX";
  int asked = 0;
  EXPECT_TRUE(HoldTiles(77, [&asked] { return ++asked < 3; }));
  EXPECT_EQ(asked, 3);
}

#endif

}  // namespace
}  // namespace baton::kernels::cpu
