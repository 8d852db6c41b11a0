#include "engine/kernels/cpu/panel_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/seed.h"

namespace baton::kernels::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

bool IsAligned(const std::byte* memory, size_t to) { return reinterpret_cast<uintptr_t>(memory) % to == 0; }

TEST(PanelMemoryTest, LargeMatricesHavePagesOfTheirOwnAndSmallOnesShareThem) {
  PanelMemory memory;
  const auto large = memory.Take(kHugePage + 1);
  ASSERT_NE(large, nullptr);
  EXPECT_TRUE(IsAligned(large.get(), kHugePage));
  const auto first = memory.Take(1000), second = memory.Take(1000);
  EXPECT_TRUE(IsAligned(first.get(), kHugePage)) << "the first of a chunk";
  EXPECT_EQ(second.get() - first.get(), 1024) << "whole cache lines, one behind the other";
}

TEST(PanelMemoryTest, WhatIsGivenBackIsUsedAgain) {
  PanelMemory memory;
  const auto kept = memory.Take(100 << 10);
  std::set<const std::byte*> places;
  for (int i = 0; i < 1000; ++i) places.insert(memory.Take(kHugePage - 64).get());
  EXPECT_EQ(places.size(), 1u) << "as the experts of a model, that are packed and written to a file";
  auto a = memory.Take(1 << 20), b = memory.Take(1 << 20), c = memory.Take(1 << 20);
  const std::byte* const at = a.get();
  a = nullptr;
  c = nullptr;
  b = nullptr;
  EXPECT_EQ(memory.Take(kHugePage - 64).get(), at) << "neighbours become one place";
}

TEST(PanelMemoryTest, OutlivesWhoMadeIt) {
  auto memory = std::make_unique<PanelMemory>();
  const auto taken = memory->Take(64);
  memory = nullptr;
  std::memset(taken.get(), 1, 64);
}

// Nothing overlaps: each piece keeps the bytes that were written into it.
TEST(PanelMemoryTest, PiecesOfRandomSizesKeepTheirBytes) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  PanelMemory memory;
  struct Piece {
    std::shared_ptr<std::byte> memory;
    size_t bytes;
    uint8_t value;
  };
  std::vector<Piece> pieces;
  for (int step = 0; step < 3000; ++step) {
    if (pieces.size() < 60 && random() % 2 == 0) {
      const size_t bytes = 1 + random() % (random() % 8 == 0 ? kHugePage : 40'000);
      Piece piece{memory.Take(bytes), bytes, static_cast<uint8_t>(random())};
      ASSERT_TRUE(IsAligned(piece.memory.get(), 64));
      std::memset(piece.memory.get(), piece.value, bytes);
      pieces.push_back(std::move(piece));
    } else if (!pieces.empty()) {
      const size_t which = random() % pieces.size();
      const auto* bytes = reinterpret_cast<const uint8_t*>(pieces[which].memory.get());
      ASSERT_EQ(bytes[0], pieces[which].value) << "seed " << seed;
      ASSERT_EQ(std::memcmp(bytes, bytes + 1, pieces[which].bytes - 1), 0) << "seed " << seed;
      pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(which));
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
