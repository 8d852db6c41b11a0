#include "tests/gpu/emulation/warpgroups.h"

#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "tests/gpu/emulation/fibers.h"

namespace emulation {
namespace {

constexpr int kWarps = 4, kLanes = 128, kRows = 64, kDepth = 16;

// Eight values, in memory one behind the other.
struct Chunk {
  uint16_t values[8];
};

// A [extent, 16] operand, decoded; [i][k] in bits.
using Matrix = std::vector<std::array<uint16_t, kDepth>>;

// Sums that products add up in, row-major, and the registers that they belong to.
struct Sums {
  int n;
  std::array<float*, kLanes> registers;
  std::vector<float> values;
};

struct Pending {
  Product product;  // as the first lane has it
  std::array<const uint32_t*, kLanes> a;
  Matrix a_seen, b_seen;  // at the time of issue
  std::shared_ptr<Sums> sums;
};
using Group = std::vector<Pending>;

struct Warpgroup {
  Group open;
  std::deque<Group> committed;
  std::array<size_t, kWarps> done = {};  // of `committed`, by each warp
  std::array<bool, kWarps> fenced = {};
};

// The running block's state.
struct State {
  uint64_t block = 0;
  std::map<int, Warpgroup> groups;
  std::vector<int> writer;                       // of every chunk: a thread, or -1 if fenced
  std::map<int, std::vector<uint32_t>> written;  // by a thread, since its last fence
};

State& Now() {
  static State state;
  if (state.block != BlockNumber()) {
    state = {};
    state.block = BlockNumber();
    state.writer.assign(SharedBytes() / 16, -1);
  }
  return state;
}

int Thread() { return static_cast<int>(Current().thread.x); }
Warpgroup& Own() { return Now().groups[Thread() / kLanes]; }

// Where chunk (mn, k) of 8 values lies; mn or k counts in chunks, as the layout is major in it. Offsets in
// the PTX ISA are in chunks of 16 bytes: K-major, 8 rows side by side and every eighth at the stride;
// MN-major, as many chunks of MN side by side as the swizzle is wide, 8 steps of K one below the other.
uint32_t OffsetOf(uint64_t descriptor, bool k_major, int mn, int k) {
  const auto leading = static_cast<uint32_t>(descriptor >> 16 & 0x3FFF) << 4;
  const auto stride = static_cast<uint32_t>(descriptor >> 32 & 0x3FFF) << 4;
  const auto swizzle = static_cast<int>(descriptor >> 62);
  const uint32_t wide = swizzle == 0 ? 1 : 16u >> swizzle;  // chunks: 8, 4, 2
  const auto i = static_cast<uint32_t>(mn), j = static_cast<uint32_t>(k);
  if (k_major) {
    return i % 8 * wide * 16 + i / 8 * stride + (swizzle == 0 ? j * leading : j * 16);
  }
  if (swizzle == 0) return i * stride + j % 8 * 16 + j / 8 * leading;
  return i % wide * 16 + i / wide * leading + j % 8 * wide * 16 + j / 8 * stride;
}

Chunk ReadChunk(uint64_t descriptor, bool k_major, int mn, int k) {
  BATON_CHECK((descriptor >> 49 & 7) == 0) << " base offsets are not known here";
  BATON_CHECK((descriptor & 0x3FF1C000C000C000) == 0) << " reserved bits of a descriptor are set";
  uint32_t address = static_cast<uint32_t>(descriptor & 0x3FFF) << 4;
  address += OffsetOf(descriptor, k_major, mn, k);
  const auto swizzle = static_cast<int>(descriptor >> 62);
  if (swizzle != 0) address ^= (address >> 7 & ((8u >> (swizzle - 1)) - 1)) << 4;
  const auto* from = static_cast<const unsigned char*>(SharedAt(address, 16));
  const int writer = Now().writer[(address - kSharedWindow) / 16];
  BATON_CHECK(writer < 0) << " wgmma reads what thread " << writer << " wrote and has not fenced";
  Chunk chunk;
  std::memcpy(&chunk, from, sizeof chunk);
  return chunk;
}

Matrix Read(uint64_t descriptor, bool k_major, int extent) {
  Matrix matrix(static_cast<size_t>(extent));
  if (k_major) {
    for (int i = 0; i < extent; ++i) {
      for (int k = 0; k < kDepth; k += 8) {
        const Chunk chunk = ReadChunk(descriptor, true, i, k / 8);
        std::memcpy(&matrix[static_cast<size_t>(i)][static_cast<size_t>(k)], &chunk, sizeof chunk);
      }
    }
    return matrix;
  }
  for (int i = 0; i < extent; i += 8) {
    for (int k = 0; k < kDepth; ++k) {
      const Chunk chunk = ReadChunk(descriptor, false, i / 8, k);
      for (int j = 0; j < 8; ++j) {
        matrix[static_cast<size_t>(i + j)][static_cast<size_t>(k)] = chunk.values[j];
      }
    }
  }
  return matrix;
}

// Row and column of register i of a lane, "Matrix fragments for wgmma.mma_async.m64nNk16": D's, and with n =
// 16 A's, whose registers hold two values each.
int RowOf(int lane, int i) { return lane / 32 * 16 + lane % 32 / 4 + i / 2 % 2 * 8; }
int ColumnOf(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

std::shared_ptr<Sums> SumsOf(Warpgroup& group, int n, const std::array<float*, kLanes>& registers) {
  const auto look = [&](const Group& pending) -> std::shared_ptr<Sums> {
    for (const Pending& other : pending) {
      if (other.sums->registers[0] == registers[0]) return other.sums;
    }
    return nullptr;
  };
  std::shared_ptr<Sums> sums = look(group.open);
  for (size_t g = group.committed.size(); sums == nullptr && g > 0; --g) sums = look(group.committed[g - 1]);
  if (sums == nullptr) {
    sums = std::make_shared<Sums>(Sums{n, registers, std::vector<float>(static_cast<size_t>(kRows * n))});
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < n / 2; ++i) {
        float& here = registers[static_cast<size_t>(lane)][i];
        sums->values[static_cast<size_t>(RowOf(lane, i) * n + ColumnOf(lane, i))] = here;
        here = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
  BATON_CHECK(sums->n == n && sums->registers == registers) << " accumulators of different shapes";
  return sums;
}

// The rows of one warp.
void Compute(const Pending& pending, int warp) {
  const Product& product = pending.product;
  const Matrix b = Read(product.b_descriptor, product.b_k_major, product.n);
  BATON_CHECK(b == pending.b_seen) << " shared memory changed under a product";
  Matrix a(kRows);
  if (pending.a[0] == nullptr) {
    a = Read(product.a_descriptor, product.a_k_major, kRows);
    BATON_CHECK(a == pending.a_seen) << " shared memory changed under a product";
  } else {
    for (int lane = warp * 32; lane < warp * 32 + 32; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const uint32_t pair = pending.a[static_cast<size_t>(lane)][i / 2];
        a[static_cast<size_t>(RowOf(lane, i))][static_cast<size_t>(ColumnOf(lane, i))] =
            static_cast<uint16_t>(i % 2 == 0 ? pair : pair >> 16);
      }
    }
  }
  std::vector<float> columns(static_cast<size_t>(kDepth * product.n));  // [k][n]
  for (int k = 0; k < kDepth; ++k) {
    for (int n = 0; n < product.n; ++n) {
      columns[static_cast<size_t>(k * product.n + n)] =
          product.value(b[static_cast<size_t>(n)][static_cast<size_t>(k)]);
    }
  }
  for (int row = warp * 16; row < warp * 16 + 16; ++row) {
    float* sum = &pending.sums->values[static_cast<size_t>(row * product.n)];
    if (!product.accumulate) std::fill_n(sum, product.n, 0.0f);
    for (int k = 0; k < kDepth; ++k) {
      const float factor = product.value(a[static_cast<size_t>(row)][static_cast<size_t>(k)]);
      const float* column = &columns[static_cast<size_t>(k * product.n)];
      for (int n = 0; n < product.n; ++n) sum[n] += factor * column[n];
    }
  }
}

bool Uses(const Group& group, const Sums* sums) {
  for (const Pending& pending : group) {
    if (pending.sums.get() == sums) return true;
  }
  return false;
}

}  // namespace

void IssueProduct(const Product& product) {
  Product own = product;
  MeetWarpgroup(&own, [](void* const* lanes) {
    Warpgroup& group = Own();
    for (const bool fenced : group.fenced) BATON_CHECK(fenced) << " products without WgmmaFence before them";
    const Product& first = *static_cast<const Product*>(lanes[0]);
    Pending pending{first, {}, {}, {}, nullptr};
    std::array<float*, kLanes> registers;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const Product& other = *static_cast<const Product*>(lanes[lane]);
      BATON_CHECK(other.n == first.n && other.a_descriptor == first.a_descriptor &&
                  other.b_descriptor == first.b_descriptor && other.accumulate == first.accumulate &&
                  (other.a == nullptr) == (first.a == nullptr))
          << " lanes of a warpgroup issue different products";
      registers[lane] = other.d;
      pending.a[lane] = other.a;
    }
    pending.b_seen = Read(first.b_descriptor, first.b_k_major, first.n);
    if (first.a == nullptr) pending.a_seen = Read(first.a_descriptor, first.a_k_major, kRows);
    pending.sums = SumsOf(group, first.n, registers);
    group.open.push_back(std::move(pending));
  });
}

void FenceProducts() { Own().fenced[static_cast<size_t>(Thread() % kLanes / 32)] = true; }

void CommitProducts() {
  MeetWarpgroup(nullptr, [](void* const*) {
    Warpgroup& group = Own();
    group.committed.push_back(std::move(group.open));
    group.open.clear();
  });
}

void WaitForProducts(int left) {
  MeetWarp(nullptr, [left](void* const*) {
    Warpgroup& group = Own();
    const auto warp = static_cast<size_t>(Thread() % kLanes / 32);
    group.fenced[warp] = false;
    for (size_t& done = group.done[warp]; group.committed.size() - done > static_cast<size_t>(left); ++done) {
      Group& ready = group.committed[done];
      for (const Pending& pending : ready) Compute(pending, static_cast<int>(warp));
      for (const Pending& pending : ready) {
        // Sums that a later product adds to are not to be seen yet.
        Sums& sums = *pending.sums;
        bool later = Uses(group.open, &sums);
        for (size_t g = done + 1; g < group.committed.size(); ++g) later |= Uses(group.committed[g], &sums);
        if (later) continue;
        for (size_t lane = warp * 32; lane < warp * 32 + 32; ++lane) {
          for (int i = 0; i < sums.n / 2; ++i) {
            const int l = static_cast<int>(lane);
            sums.registers[lane][i] = sums.values[static_cast<size_t>(RowOf(l, i) * sums.n + ColumnOf(l, i))];
          }
        }
      }
    }
    while (!group.committed.empty() && *std::min_element(group.done.begin(), group.done.end()) > 0) {
      group.committed.pop_front();
      for (size_t& done : group.done) --done;
    }
  });
}

void WroteShared(const void* where) {
  const uint32_t address = SharedAddressOf(where);
  if (address == 0) return;  // none of the block's dynamic shared memory
  const uint32_t chunk = (address - kSharedWindow) / 16;
  Now().writer[chunk] = Thread();
  Now().written[Thread()].push_back(chunk);
}

void FenceProxy() {
  std::vector<uint32_t>& written = Now().written[Thread()];
  for (const uint32_t chunk : written) {
    if (Now().writer[chunk] == Thread()) Now().writer[chunk] = -1;
  }
  written.clear();
}

}  // namespace emulation
