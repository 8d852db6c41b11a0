// The emulated wgmma itself: every layout that a descriptor can name, laid out here by the swizzles' other
// definition (which chunk of a row stands where), and that it notices what kernels must not do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/gpu/emulation/fibers.h"
#include "tests/gpu/emulation/warpgroups.h"

namespace emulation {
namespace {

constexpr int kColumns = 64, kRows = 64, kSteps = 2, kDepth = 16 * kSteps;
constexpr uint32_t kA = 0, kB = 32 << 10;  // in shared memory
constexpr uint32_t kWgmmaSeed = 12;

alignas(1024) unsigned char memory[64 << 10];

uint64_t Encode(uint32_t at, uint32_t leading, uint32_t stride, int swizzle) {
  return static_cast<uint64_t>(swizzle) << 62 | static_cast<uint64_t>(stride >> 4) << 32 |
         static_cast<uint64_t>(leading >> 4) << 16 | (at + kSharedWindow) >> 4;
}

// Where chunk c of row r of a swizzled atom stands: 1: 128-byte rows, 2: 64, 3: 32.
int Swizzled(int swizzle, int row, int chunk) {
  return swizzle == 1 ? chunk ^ (row % 8) : swizzle == 2 ? chunk ^ (row / 2 % 4) : chunk ^ (row / 4 % 2);
}

struct Layout {
  bool k_major;
  int swizzle;
  uint32_t leading, stride;
};

// The byte of element (i, k) of a [64, 32] matrix.
uint32_t ByteOf(const Layout& l, int i, int k) {
  const auto u = [](int value) { return static_cast<uint32_t>(value); };
  const int major = l.k_major ? k : i, minor = l.k_major ? i : k;
  const uint32_t inner = u(major % 8) * 2;
  if (l.swizzle == 0) {
    // Cores of 8 rows of 16 bytes; the stride goes to the next along MN, the leading offset to the next along
    // K.
    return u(i / 8) * l.stride + u(k / 8) * l.leading + u(minor % 8) * 16 + inner;
  }
  const int chunks = 16 >> l.swizzle;  // of a row
  const int panel = major / (8 * chunks), chunk = major / 8 % chunks;
  return u(panel) * l.leading + u(minor / 8) * l.stride + u(minor % 8) * u(chunks) * 16 +
         u(Swizzled(l.swizzle, minor % 8, chunk)) * 16 + inner;
}

// The descriptor of 16 steps of k from `k` on.
uint64_t DescriptorAt(const Layout& l, uint32_t at, int k) {
  uint32_t offset = 0;
  if (!l.k_major) {
    offset = static_cast<uint32_t>(k / 8) * (l.swizzle == 0 ? l.leading : l.stride);
  } else if (l.swizzle == 0) {
    offset = static_cast<uint32_t>(k / 8) * l.leading;
  } else {
    const int row = 64 >> (l.swizzle - 1);  // values in a row
    offset = static_cast<uint32_t>(k / row) * l.leading + static_cast<uint32_t>(k % row) * 2;
  }
  return Encode(at + offset, l.leading, l.stride, l.swizzle);
}

// K-major with 32-byte rows of 16 values: two panels for 32 steps.
std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const bool k_major : {true, false}) {
    layouts.push_back({k_major, 0, 144, 1152});
    layouts.push_back({k_major, 1, 16384, 2048});
    layouts.push_back({k_major, 2, 9216, 1024});
    layouts.push_back({k_major, 3, 6144, 512});
  }
  return layouts;
}

float Value(uint16_t bits) { return static_cast<float>(static_cast<int16_t>(bits)); }

void Store(uint32_t at, uint16_t value) {
  std::memcpy(memory + at, &value, sizeof value);
  WroteShared(memory + at / 16 * 16);
}

// Runs `body` on one warpgroup.
void RunWarpgroup(const std::function<void(int lane)>& body) {
  Run(memory, dim3(1), 128, sizeof memory, nullptr, [&] { body(static_cast<int>(threadIdx.x)); });
}

TEST(EmulatedWgmmaTest, DecodesEveryLayout) {
  std::mt19937 random(kWgmmaSeed);
  std::vector<int16_t> a(kRows * kDepth), b(kColumns * kDepth);
  for (auto* matrix : {&a, &b}) {
    for (int16_t& value : *matrix) value = static_cast<int16_t>(static_cast<int>(random() % 41) - 20);
  }
  const auto at = [](const std::vector<int16_t>& m, int i, int k) {
    return m[static_cast<size_t>(i * kDepth + k)];
  };
  for (const Layout& of_a : Layouts()) {
    for (const Layout& of_b : Layouts()) {
      SCOPED_TRACE(testing::Message() << "A k-major " << of_a.k_major << ", swizzle " << of_a.swizzle
                                      << "; B k-major " << of_b.k_major << ", swizzle " << of_b.swizzle);
      int wrong = 0;
      RunWarpgroup([&](int lane) {
        for (int i = lane; i < kRows; i += 128) {
          for (int k = 0; k < kDepth; ++k) {
            Store(kA + ByteOf(of_a, i, k), static_cast<uint16_t>(at(a, i, k)));
            Store(kB + ByteOf(of_b, i, k), static_cast<uint16_t>(at(b, i, k)));
          }
        }
        FenceProxy();
        MeetBlock();
        FenceProducts();
        float d[kColumns / 2];
        for (int kk = 0; kk < kSteps; ++kk) {
          IssueProduct({.n = kColumns,
                        .d = d,
                        .a_descriptor = DescriptorAt(of_a, kA, kk * 16),
                        .b_descriptor = DescriptorAt(of_b, kB, kk * 16),
                        .a_k_major = of_a.k_major,
                        .b_k_major = of_b.k_major,
                        .accumulate = kk > 0,
                        .value = Value});
        }
        CommitProducts();
        WaitForProducts(0);
        for (int i = 0; i < kColumns / 2; ++i) {
          const int row = lane / 32 * 16 + lane % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
          const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
          float expected = 0;
          for (int k = 0; k < kDepth; ++k) expected += static_cast<float>(at(a, row, k) * at(b, column, k));
          wrong += d[i] == expected ? 0 : 1;
        }
      });
      EXPECT_EQ(wrong, 0);
    }
  }
}

const Layout kPlain{false, 1, 16384, 1024};

struct Mistakes {
  bool fence_proxy = true, fence_products = true, write_early = false, differ = false, outside = false;
};

// One product of ones, A in registers; the accumulator's first register before the wait and after.
std::pair<float, float> Once(const Mistakes& mistakes) {
  std::pair<float, float> seen;
  RunWarpgroup([&](int lane) {
    for (int k = 0; k < 16; ++k) {
      if (lane < kColumns) Store(kB + ByteOf(kPlain, lane, k), 1);
    }
    if (mistakes.fence_proxy) FenceProxy();
    MeetBlock();
    if (mistakes.fence_products) FenceProducts();
    float d[kColumns / 2] = {};
    const uint32_t a[4] = {0x10001, 0x10001, 0x10001, 0x10001};
    const uint32_t at =
        (mistakes.outside ? sizeof memory - 1024 : kB) + (mistakes.differ && lane == 77 ? 2048 : 0);
    IssueProduct(
        {.n = kColumns, .d = d, .a = a, .b_descriptor = DescriptorAt(kPlain, at, 0), .value = Value});
    CommitProducts();
    if (lane == 0) seen.first = d[0];
    if (mistakes.write_early && lane == 0) {
      Store(kB, 7);
      FenceProxy();
    }
    MeetBlock();
    WaitForProducts(0);
    if (lane == 0) seen.second = d[0];
  });
  return seen;
}

TEST(EmulatedWgmmaTest, SumsAreThereOnlyAfterTheWait) {
  const auto [before, after] = Once({});
  EXPECT_TRUE(std::isnan(before));
  EXPECT_EQ(after, 16);
}

TEST(EmulatedWgmmaDeathTest, NoticesWhatKernelsMustNotDo) {
  EXPECT_DEATH(Once({.fence_proxy = false}), "has not fenced");
  EXPECT_DEATH(Once({.fence_products = false}), "without WgmmaFence");
  EXPECT_DEATH(Once({.write_early = true}), "changed under a product");
  EXPECT_DEATH(Once({.differ = true}), "different products");
  EXPECT_DEATH(Once({.outside = true}), "outside the block's shared memory");
}

}  // namespace
}  // namespace emulation
