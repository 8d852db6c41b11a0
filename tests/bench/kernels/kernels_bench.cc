// How fast the cpu backend is, beside what the machine can do. Every repetition measures the limits, ours and
// the peer one after another, so that a noisy neighbour slows them all alike; shares are medians of each
// repetition's own ratio.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/tensor/dtype.h"
#include "engine/device/thread_pool.h"
#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/isa.h"
#include "engine/kernels/kernels.h"
#include "lab/bench/machine_limits.h"
#include "tests/bench/kernels/peer.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

using lab::bench::ReadAll;
using lab::bench::ReadBuffer;
using lab::bench::RunMultiplyAdds;

using kernels::Kernels;
using kernels::Matrix;
using kernels::WeightView;
using tensor::DType;

// On one thread, the time that the thread really ran: others on a busy machine then disturb the caches only.
// On more, the time on the wall.
bool one_thread = false;

double Now() {
  timespec now;
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const std::function<void()>& work) {
  const double start = Now();
  work();
  return Now() - start;
}

// Seconds per call, over enough calls to fill some milliseconds, after one that warms caches and threads.
double SecondsPerCall(const std::function<void()>& work) {
  constexpr double kEnough = 0.004;
  const double first = Seconds(work);
  const int calls = std::max(1, static_cast<int>(kEnough / std::max(first, 1e-7)));
  return Seconds([&] {
           for (int i = 0; i < calls; ++i) work();
         }) /
         calls;
}

std::vector<float> Normals(int64_t count) {
  static std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

// One series: what a repetition took and how that compares with the limits around it.
struct Series {
  std::vector<double> rate, of_limit, peer;
  double best = 0;
};

// True if products by the instruction set of that name may use AVX512_BF16.
bool HasBF16Products(const std::string& isa) {
#if defined(__x86_64__)
  return (isa.empty() || isa == "avx512vnni" || isa == "amx") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

class Bench {
 public:
  // beside: another instruction set to compare with, or empty.
  Bench(const std::string& isa, const std::string& beside, int threads, int repetitions)
      : pool_(threads),
        kernels_(*kernels::MakeCpuKernels({.threads = threads, .isa = isa})),
        beside_(beside.empty() ? nullptr : *kernels::MakeCpuKernels({.threads = threads, .isa = beside})),
        tiles_(*kernels::cpu::ChooseIsa(isa) == kernels::cpu::Isa::kAmx),
        repetitions_(repetitions),
        bf16_products_(HasBF16Products(isa)),
        big_(int64_t{64} << 20) {}  // larger than any cache

  void PrintLimits() {
    std::vector<double> flops, bytes, flops_one, bytes_one;
    device::ThreadPool one(1);
    for (int i = 0; i < repetitions_; ++i) {
      flops_one.push_back(FlopLimit(one));
      bytes_one.push_back(ByteLimit(one));
      flops.push_back(FlopLimit(pool_));
      bytes.push_back(ByteLimit(pool_));
    }
    std::printf(
        "limits, medians of %d: 1 thread %.0f GFLOP/s (f32 multiply-add), %.1f GB/s read; %d threads %.0f "
        "GFLOP/s, %.1f GB/s\n\n",
        repetitions_, Median(flops_one) / 1e9, Median(bytes_one) / 1e9, pool_.threads(), Median(flops) / 1e9,
        Median(bytes) / 1e9);
  }

  enum class Weights { kF32, kBF16, kInt8, kInt4 };
  void Gemm(int64_t features, int64_t depth, const std::vector<Weights>& kinds) {
    const std::vector<float> wide = Normals(features * depth);
    std::vector<uint16_t> halves;
    for (float value : wide) halves.push_back(tensor::ToBF16(value));
    // Integers as a quantizer would make them, but for the search of their scales.
    std::vector<int8_t> integers;
    for (float value : wide) integers.push_back(static_cast<int8_t>(std::clamp(value * 30, -127.0f, 127.0f)));
    const std::vector<float> scales(static_cast<size_t>(features), 1.0f / 30);
    // 4 bits: half of the same bytes, whatever they then stand for.
    const std::vector<uint8_t> factors(static_cast<size_t>(features * ((depth + 15) / 16)), 5);
    for (const Weights kind : kinds) {
      const bool bits = kind == Weights::kInt8 || kind == Weights::kInt4;
      const DType dtype = bits ? DType::kI8 : kind == Weights::kF32 ? DType::kF32 : DType::kBF16;
      WeightView part{dtype == DType::kF32 ? static_cast<const void*>(wide.data()) : halves.data(), dtype,
                      features, depth};
      if (kind == Weights::kInt4) {
        part.data = integers.data();
        part.quantization = {.bits = 4,
                             .group = 16,
                             .scales = scales.data(),
                             .zeros = factors.data(),
                             .factors = factors.data()};
      } else if (kind == Weights::kInt8) {
        part.data = integers.data();
        part.quantization = {.bits = 8, .group = depth, .scales = scales.data()};
      }
      auto packed = *kernels_->Pack({&part, 1});
      const auto other = beside_ == nullptr ? nullptr : *beside_->Pack({&part, 1});
      for (int64_t rows : {1, 4, 8, 16, 64, 256, 512}) {
        std::vector<float> x = Normals(rows * depth), out(static_cast<size_t>(rows * features));
        const Matrix in{x.data(), rows, depth, depth}, result{out.data(), rows, features, features};
        std::unique_ptr<Peer> peer =
            bits || beside_ != nullptr ? nullptr : MakePeer(rows, features, depth, dtype);
        std::function<void()> compared;
        if (peer != nullptr) compared = [&] { peer->Run(); };
        if (beside_ != nullptr) compared = [&] { beside_->MatMul(in, *other, {}, result); };
        const double flops = 2.0 * static_cast<double>(rows * features * depth);
        const auto bytes = static_cast<double>(packed->bytes());
        // Weights beyond the last-level cache's reach come from memory; smaller ones stay in it between
        // calls.
        const bool streams = bytes > 24e6;
        // An instruction for products of bytes does four where one for floats does one, and one for bfloat16
        // two. Tiles have a limit of their own.
        const bool by_tiles = tiles_ && rows > 1 && kind != Weights::kF32;
        const double size = bits ? 0.25 : dtype == DType::kBF16 && bf16_products_ ? 0.5 : 1;
        Series series = Measure(
            by_tiles ? flops : flops * size, streams ? bytes : 0,
            [&] { kernels_->MatMul(in, *packed, {}, result); }, compared,
            by_tiles ? [this, bits] { return TileLimit(bits); } : std::function<double()>());
        std::printf(
            "  gemm %5ld x %-5ld %-4s M=%-4ld %8.1f GFLOP/s (best %7.1f) %7.1f GB/s  %4.0f%% of limit",
            features, depth, kind == Weights::kInt4 ? "i4" : std::string(tensor::Name(dtype)).c_str(), rows,
            Median(series.rate) * flops / 1e9, series.best * flops / 1e9, Median(series.rate) * bytes / 1e9,
            100 * Median(series.of_limit));
        if (compared != nullptr) std::printf("  %5.2fx peer", Median(series.peer));
        std::printf("\n");
        std::fflush(stdout);
      }
    }
  }

  // `rows` new tokens of each of `batch` sequences that have `past` tokens already.
  void Attention(int64_t batch, int64_t past, int64_t rows, DType keys, DType values) {
    const kernels::AttentionShape shape = {
        .heads = 32, .kv_heads = 8, .head_dim = 128, .scale = 0.088f, .window = 0};
    const kv::KvLayout layout = {
        .layers = 1, .kv_heads = 8, .head_dim = 128, .key_dtype = keys, .value_dtype = values};
    const int64_t blocks = BlocksFor(past + rows);
    kv::KvStore store = *kv::KvStore::Create(layout, batch * blocks);
    std::vector<BlockId> ids;
    for (int64_t b = 0; b < batch * blocks; ++b) ids.emplace_back(static_cast<uint32_t>(b));
    std::shuffle(ids.begin(), ids.end(), std::mt19937(3));
    const int64_t cols = 48 * 128, out_cols = 32 * 128;
    // KV of random tokens, written the way that the engine writes it.
    std::vector<float> past_rows = Normals((past + rows) * cols);
    const std::vector<float> cos(static_cast<size_t>((past + rows) * 64), 1.0f), sin(cos.size(), 0.0f);
    std::vector<kernels::SequenceRows> sequences;
    for (int64_t s = 0; s < batch; ++s) {
      const std::span<const BlockId> own(ids.data() + s * blocks, static_cast<size_t>(blocks));
      const kernels::SequenceRows all = {
          .first_row = 0, .rows = past + rows, .first_position = 0, .blocks = own};
      kernels_->RotateAndStore({past_rows.data(), past + rows, cols, cols}, shape, {}, {cos, sin, 64},
                               {&all, 1}, 0, store);
      sequences.push_back({.first_row = s * rows, .rows = rows, .first_position = past, .blocks = own});
    }
    std::vector<float> q = Normals(batch * rows * out_cols), out(q.size());
    double context = 0;
    for (int64_t r = 0; r < rows; ++r) context += static_cast<double>(past + r + 1);
    const double flops = 4.0 * static_cast<double>(batch) * context * 32 * 128;
    const double bytes = static_cast<double>(batch * blocks * layout.block_bytes());
    const Matrix in{q.data(), batch * rows, out_cols, out_cols},
        result{out.data(), batch * rows, out_cols, out_cols};
    Series series = Measure(
        flops, rows == 1 && bytes > 24e6 ? bytes : 0,
        [&] { kernels_->Attention(in, shape, sequences, 0, store, result); },
        beside_ == nullptr ? std::function<void()>()
                           : [&] { beside_->Attention(in, shape, sequences, 0, store, result); });
    std::printf(
        "  attention %ld seq x %ld rows at %-5ld K %-4s V %-4s %8.1f GFLOP/s (best %7.1f) %7.1f GB/s  "
        "%4.0f%% of limit",
        batch, rows, past, std::string(tensor::Name(keys)).c_str(), std::string(tensor::Name(values)).c_str(),
        Median(series.rate) * flops / 1e9, series.best * flops / 1e9, Median(series.rate) * bytes / 1e9,
        100 * Median(series.of_limit));
    if (beside_ != nullptr) std::printf("  %5.2fx peer", Median(series.peer));
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  double FlopLimit(device::ThreadPool& pool) {
    int64_t flops = 0;
    const double seconds = Seconds([&] { flops = RunMultiplyAdds(pool, 1 << 20); });
    return static_cast<double>(flops) / seconds;
  }
  double ByteLimit(device::ThreadPool& pool) {
    int64_t bytes = 0;
    const double seconds = Seconds([&] { bytes = ReadAll(pool, big_.data()); });
    return static_cast<double>(bytes) / seconds;
  }

  // Operations per second of tiles of bytes, or of bfloat16, whose operands are in the first-level cache.
  double TileLimit([[maybe_unused]] bool bytes) {
#if defined(__x86_64__)
    constexpr int64_t kRows = 2 * kernels::cpu::kTileRows, kSteps = 8, kRounds = 1000;
    const double seconds = Seconds([&] {
      pool_.ParallelFor(pool_.threads(), [&](int64_t) {
        alignas(64) std::byte x[kRows * kSteps * kernels::cpu::kTileRowBytes] = {};
        alignas(64) std::byte panel[kSteps * kernels::cpu::kTileStepBytes] = {};
        alignas(64) std::byte sums[kRows * kernels::cpu::kPanelRows * 4] = {};
        const kernels::cpu::TileProduct product = {.x = x,
                                                   .x_stride = kSteps * kernels::cpu::kTileRowBytes,
                                                   .rows = kRows,
                                                   .panel = panel,
                                                   .steps = kSteps,
                                                   .sums = sums,
                                                   .ahead = panel,
                                                   .ahead_step = 0};
        for (int64_t i = 0; i < kRounds; ++i) {
          bytes ? MultiplyByteTiles(product) : MultiplyBF16Tiles(product);
        }
      });
    });
    const int64_t columns = kSteps * kernels::cpu::kTileRowBytes / (bytes ? 1 : 2);
    return 2.0 * static_cast<double>(pool_.threads() * kRounds * kRows * columns * kernels::cpu::kPanelRows) /
           seconds;
#else
    return 0;
#endif
  }

  // The limit of work of `flops` that has to bring in `bytes` is what takes longer of the two. own_limit: the
  // machine's operations per second, those of float32 if it is empty.
  Series Measure(double flops, double bytes, const std::function<void()>& work,
                 const std::function<void()>& compared, const std::function<double()>& own_limit = {}) {
    Series series;
    for (int i = 0; i < repetitions_; ++i) {
      double limit = flops / (own_limit ? own_limit() : FlopLimit(pool_));
      if (bytes > 0) limit = std::max(limit, bytes / ByteLimit(pool_));
      const double seconds = SecondsPerCall(work);
      series.rate.push_back(1 / seconds);
      series.of_limit.push_back(limit / seconds);
      series.best = std::max(series.best, 1 / seconds);
      if (compared) series.peer.push_back(SecondsPerCall(compared) / seconds);
    }
    return series;
  }

  device::ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Kernels> beside_;  // or null
  const bool tiles_;                 // of AMX
  const int repetitions_;
  const bool bf16_products_;
  ReadBuffer big_;
};

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  std::string commit = "unknown", isa, beside;
  int threads = 0, repetitions = 9;
  bool attention = false;
  CLI::App app("The cpu kernels beside this machine's limits");
  app.add_option("--commit", commit, "what was built, for the record");
  app.add_option("--isa", isa,
                 "instruction set: amx, avx512vnni, avx512, avx2 or baseline; the fastest by default");
  app.add_option("--beside", beside, "another instruction set, which is the peer then");
  app.add_option("--threads", threads, "threads; all cores by default");
  app.add_option("--repetitions", repetitions, "of which the medians are shown")->check(CLI::PositiveNumber);
  app.add_flag("--attention", attention, "attention alone");
  CLI11_PARSE(app, argc, argv);
  if (threads == 0) threads = baton::device::UsableCores();
  baton::bench::one_thread = threads == 1;
  baton::bench::SetPeerThreads(threads);
  std::printf("%s, %d thread(s), %s time, %s, compiler %s, commit %s, peer %s\n",
              baton::bench::CpuModel().c_str(), threads, threads == 1 ? "CPU" : "wall",
              isa.empty() ? "best instruction set" : isa.c_str(), __VERSION__, commit.c_str(),
              beside.empty() ? baton::bench::PeerName().c_str() : beside.c_str());
  using baton::tensor::DType;
  baton::bench::Bench bench(isa, beside, threads, repetitions);
  bench.PrintLimits();
  using enum baton::bench::Bench::Weights;
  if (!attention) {
    bench.Gemm(8192, 8192, {kInt4, kInt8});  // no cache holds it
    bench.Gemm(4096, 4096, {kInt4, kInt8, kBF16, kF32});
    bench.Gemm(192, 512, {kInt4, kInt8, kBF16, kF32});
  }
  using KvPair = std::pair<DType, DType>;
  for (const auto& [keys, values] :
       {KvPair{DType::kF32, DType::kF32}, KvPair{DType::kBF16, DType::kBF16}, KvPair{DType::kI8, DType::kI8},
        KvPair{DType::kI8, DType::kI4}, KvPair{DType::kI4, DType::kI4}}) {
    bench.Attention(1, 0, 512, keys, values);
    if (keys != DType::kF32) bench.Attention(1, 3584, 512, keys, values);
    bench.Attention(8, 2048, 1, keys, values);
    // Whose KV no cache holds.
    if (keys != DType::kF32) bench.Attention(4, 16384, 1, keys, values);
  }
  return 0;
}
