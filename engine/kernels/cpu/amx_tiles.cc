// The instructions of AMX (amx_tiles.h). They are asm: what GCC 12 has for them tells its optimizer neither
// that a configuration is read whole nor that tiles are memory. The instruction set is an attribute of each
// function here: the rest of the binary runs without it.
#include "engine/kernels/cpu/amx_tiles.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)

namespace baton::kernels::cpu {
namespace {

// LDTILECFG reads this: palette 1 has 8 tiles of up to 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, zeros[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct Tiles {
  static BATON_AMX void Configure(int a, int b) {
    const auto first = static_cast<uint8_t>(a), second = static_cast<uint8_t>(b);
    Set({.rows = {first, first, second, second, first, second, kTileRows, kTileRows}});
  }
  static BATON_AMX void ConfigureWide(int a) {
    const auto rows = static_cast<uint8_t>(a);
    Set({.rows = {rows, rows, rows, rows, rows, kTileRows, kTileRows, kTileRows}});
  }
  template <int kTile>
  static BATON_AMX void Load(const std::byte* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static BATON_AMX void Store(std::byte* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  static BATON_AMX void Release() { asm volatile("tilerelease" ::: "memory"); }

 private:
  static BATON_AMX void Set(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
};

struct ByteTiles : Tiles {
  template <int kSums, int kX, int kPanel>
  static BATON_AMX void Multiply() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kX), "i"(kPanel));
  }
};

struct WordTiles : Tiles {
  template <int kSums, int kX, int kPanel>
  static BATON_AMX void Multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kX), "i"(kPanel));
  }
};

}  // namespace

BATON_AMX bool HoldTiles(uint8_t number, absl::FunctionRef<bool()> go_on) {
  constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;
  alignas(64) std::byte tile[kTileBytes];
  std::memset(tile, number, sizeof tile);
  Tiles::ConfigureWide(kTileRows);
  Tiles::Load<0>(tile, kTileRowBytes);
  Tiles::Load<1>(tile, kTileRowBytes);
  Tiles::Load<2>(tile, kTileRowBytes);
  Tiles::Load<3>(tile, kTileRowBytes);
  Tiles::Load<4>(tile, kTileRowBytes);
  Tiles::Load<5>(tile, kTileRowBytes);
  Tiles::Load<6>(tile, kTileRowBytes);
  Tiles::Load<7>(tile, kTileRowBytes);
  while (go_on()) {
  }
  bool held = true;
  const auto check = [&] {
    held = held && std::ranges::all_of(tile, [&](std::byte b) { return b == std::byte{number}; });
    std::memset(tile, 0, sizeof tile);
  };
  Tiles::Store<0>(tile, kTileRowBytes), check();
  Tiles::Store<1>(tile, kTileRowBytes), check();
  Tiles::Store<2>(tile, kTileRowBytes), check();
  Tiles::Store<3>(tile, kTileRowBytes), check();
  Tiles::Store<4>(tile, kTileRowBytes), check();
  Tiles::Store<5>(tile, kTileRowBytes), check();
  Tiles::Store<6>(tile, kTileRowBytes), check();
  Tiles::Store<7>(tile, kTileRowBytes), check();
  Tiles::Release();
  return held;
}

BATON_AMX void MultiplyByteTiles(const TileProduct& product) { TileRows<ByteTiles>::Multiply(product); }
BATON_AMX void MultiplyBF16Tiles(const TileProduct& product) { TileRows<WordTiles>::Multiply(product); }

}  // namespace baton::kernels::cpu

#endif
