#include "engine/kernels/cpu/amx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/i8_tiles.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace baton::kernels::cpu {

AmxState TryAmx(const AmxTrial& trial) {
  const auto without = [](std::string_view why) {
    return AmxState{
        .warning = fmt::format("AMX is not used: {}. Products take AVX-512, with the same results", why)};
  };
  if (!trial.there()) return {};
  if (const int error = trial.request(); error != 0) {
    return without(
        fmt::format("the kernel refuses its tiles to this process (arch_prctl: {}), as it does in "
                    "some containers and sandboxes",
                    std::strerror(error)));
  }
  if (!trial.right()) return without("its products of bytes are wrong on this machine");
  if (!trial.keeps()) {
    return without("this machine loses its tiles when a thread is preempted, as some virtual machines do");
  }
  AmxState state = {.usable = true, .faster = trial.faster()};
  if (!state.faster) state.warning = without("it is slower than AVX-512 VNNI on this machine").warning;
  return state;
}

#if defined(__x86_64__)

namespace {

// Intel's manual, volume 2, CPUID leaf 7: bits of EDX.
constexpr unsigned kBF16Bit = 1U << 22, kTileBit = 1U << 24, kByteBit = 1U << 25;
// Linux, "Using XSTATE features in user space applications"
constexpr int kRequestState = 0x1023, kTileData = 18;

bool ProcessorHas() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kBF16Bit) != 0 && (edx & kTileBit) != 0 && (edx & kByteBit) != 0;
}

int Request() { return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0 ? 0 : errno; }

// A product whose operands stay in a cache.
struct ByteTrial {
  static constexpr int64_t kRows = 96, kSteps = 16, kColumns = kSteps * kTileRowBytes;  // tiles of 6 or 16

  std::vector<int8_t> x = std::vector<int8_t>(kRows * kColumns);
  std::vector<uint8_t> panel = std::vector<uint8_t>(kSteps * kTileStepBytes);
  std::vector<int32_t> sums = std::vector<int32_t>(kRows * kPanelRows);

  ByteTrial() {
    uint64_t state = 1;
    const auto draw = [&state] {
      state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
      return static_cast<uint8_t>(state >> 40);
    };
    for (int8_t& value : x) value = static_cast<int8_t>(draw());
    for (uint8_t& value : panel) value = draw();
  }

  // The seconds that a product takes.
  template <typename Product>
  double Run(const Product& product) {
    std::ranges::fill(sums, 7);
    const auto from = std::chrono::steady_clock::now();
    product();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }
  double RunTiles() {
    return Run([&] {
      MultiplyByteTiles({.x = reinterpret_cast<const std::byte*>(x.data()),
                         .x_stride = kColumns,
                         .rows = kRows,
                         .panel = reinterpret_cast<const std::byte*>(panel.data()),
                         .steps = kSteps,
                         .sums = reinterpret_cast<std::byte*>(sums.data()),
                         .ahead = nullptr,
                         .ahead_step = 0});
    });
  }
  double RunVnni() {
    return Run([&] {
      for (int64_t r = 0; r < kRows; r += kI8VnniTiles.rows) {
        kI8VnniTiles.by_rows[kI8VnniTiles.rows - 1](
            {.x = reinterpret_cast<const std::byte*>(x.data()) + r * kColumns,
             .x_stride = kColumns,
             .panel = reinterpret_cast<const std::byte*>(panel.data()),
             .steps = kColumns / kI8Step,
             .sums = sums.data() + r * kPanelRows,
             .ahead = reinterpret_cast<const std::byte*>(panel.data()),
             .lines = 0});
      }
    });
  }
};

bool Right() {
  ByteTrial trial;
  trial.RunTiles();
  const std::vector<int32_t> of_tiles = trial.sums;
  trial.RunVnni();
  return of_tiles == trial.sums;
}

bool Faster() {
  ByteTrial trial;
  double tiles = std::numeric_limits<double>::infinity(), vnni = tiles;
  for (int i = 0; i < 16; ++i) {
    tiles = std::min(tiles, trial.RunTiles());
    vnni = std::min(vnni, trial.RunVnni());
  }
  return tiles < vnni;
}

// Holds numbers in all tiles for a while, over and over until the end, beside a thread that does the same on
// the same core: true if they were always there afterwards.
bool Holds(int core, uint8_t number, std::chrono::steady_clock::time_point end) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
  bool held = true;
  do {
    const auto until =
        std::min(end, std::chrono::steady_clock::now() + std::chrono::milliseconds(number % 2 == 0 ? 7 : 4));
    held = held && HoldTiles(number, [&] { return std::chrono::steady_clock::now() < until; });
  } while (held && std::chrono::steady_clock::now() < end);
  return held;
}

bool Keeps() {
  const int core = sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE) return true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(25);
  std::array<bool, 2> held{};
  std::array<std::thread, 2> threads;
  for (size_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&, t] { held[t] = Holds(core, static_cast<uint8_t>(t + 1), end); });
  }
  for (std::thread& thread : threads) thread.join();
  return held[0] && held[1];
}

}  // namespace

const AmxState& Amx() {
  static const auto& state = *new AmxState(
      TryAmx({.there = ProcessorHas, .request = Request, .right = Right, .keeps = Keeps, .faster = Faster}));
  return state;
}

#else

const AmxState& Amx() {
  static const auto& state = *new AmxState;
  return state;
}

#endif

}  // namespace baton::kernels::cpu
