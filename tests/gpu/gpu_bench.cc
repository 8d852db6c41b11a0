// The GPU backend's performance, beside the machine's, measured in one run: every row has a figure, the limit
// that it is judged by, and their ratio. Timed by CUDA events over enough repetitions; the best of five.
//
//   gpu_bench [--commit=REV] [--quick] [--only=decode,prefill,attention,draw,products]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <span>

#include "common/base/check.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "engine/kernels/cuda/gemm.h"
#include "tests/gpu/figures.h"

namespace baton {
namespace {

using namespace gpu;  // NOLINT: the shape
using device::cuda::CheckOk;
using kernels::AttentionShape;
using kernels::Matrix;
using kernels::SequenceRows;
using tensor::DType;

const AttentionShape kAttention{
    .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .scale = 0.08838834764f};

class Bench {
 public:
  explicit Bench(bool quick) : quick_(quick) {
    auto made = kernels::cuda::CudaKernels::Create({});
    BATON_CHECK(made.ok()) << " " << made.status().ToString();
    cuda_ = *std::move(made);
    // One angle for all positions: rotations keep lengths.
    const std::vector<float> cos(16384 * kHeadDim / 2, 0.6f), sin(cos.size(), 0.8f);
    cos_ = *kernels::Values::Place(cos, cuda_->memory());
    sin_ = *kernels::Values::Place(sin, cuda_->memory());
  }

  // The limits are measured in every run: ratios are of one run.
  void Run(const std::string& commit, std::span<const std::string> only) {
    Machine(commit);
    Limits();
    const auto wanted = [&](const char* part) {
      return only.empty() || std::ranges::find(only, part) != only.end();
    };
    if (wanted("decode")) Decode();
    if (wanted("prefill")) Prefill();
    if (wanted("attention")) AttentionKernels();
    if (wanted("draw")) Draws();
    if (wanted("products")) Products();
  }

 private:
  device::Memory::Buffer Take(int64_t bytes) {
    auto buffer = cuda_->memory().Allocate(bytes);
    BATON_CHECK(buffer.ok()) << " " << buffer.status().ToString();
    return *std::move(buffer);
  }
  // Random bf16 numbers: a GPU draws less power, and runs faster, on zeros.
  device::Memory::Buffer TakeRandom(int64_t values, float scale) {
    constexpr int64_t kBlock = 1 << 20;
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, scale);
    std::vector<uint16_t> block(static_cast<size_t>(std::min(values, kBlock)));
    for (uint16_t& value : block) value = tensor::ToBF16(normal(random));
    auto buffer = Take(values * 2);
    for (int64_t done = 0; done < values; done += kBlock) {
      const int64_t count = std::min(kBlock, values - done);
      const absl::Status filled = cuda_->memory().Upload(block.data(), buffer.get() + done * 2, count * 2);
      BATON_CHECK(filled.ok()) << " " << filled.ToString();
    }
    return buffer;
  }
  std::unique_ptr<kernels::PackedMatrix> RandomWeight(int64_t rows, int64_t cols) {
    std::mt19937 random(9);
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<uint16_t> values(static_cast<size_t>(rows * cols));
    const auto drawn = values.begin() + std::min<int64_t>(1 << 20, rows * cols);
    std::generate(values.begin(), drawn, [&] { return tensor::ToBF16(normal(random)); });
    for (auto end = drawn; end < values.end();) {
      end =
          std::copy(values.begin(), values.begin() + std::min(end - values.begin(), values.end() - end), end);
    }
    const kernels::WeightView view{values.data(), DType::kBF16, rows, cols};
    return *cuda_->Pack({&view, 1});
  }

  // Seconds of one `issue`. longest: of one measurement, without --quick.
  double Seconds(const std::function<void()>& issue, double longest = 0.1) {
    auto begin = *device::cuda::MakeEvent(true), end = *device::cuda::MakeEvent(true);
    const auto time = [&](int repetitions) {
      CheckOk(cudaEventRecord(begin.get(), cuda_->stream()), "timing");
      for (int i = 0; i < repetitions; ++i) issue();
      CheckOk(cudaEventRecord(end.get(), cuda_->stream()), "timing");
      CheckOk(cudaEventSynchronize(end.get()), "timing");
      float milliseconds = 0;
      CheckOk(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing");
      return milliseconds / 1e3 / repetitions;
    };
    time(3);
    const int repetitions = std::clamp(static_cast<int>((quick_ ? 0.02 : longest) / time(3)), 1, 10000);
    double best = time(repetitions);
    for (int i = 0; i < 4; ++i) best = std::min(best, time(repetitions));
    return best;
  }

  static void Row(const std::string& what, double value, const char* unit, double limit,
                  const char* limit_name) {
    std::printf("| %-46s | %10.2f %-8s | %10.2f %-18s | %5.1f%% |\n", what.c_str(), value, unit, limit,
                limit_name, 100 * value / limit);
    std::fflush(stdout);
  }

  void Machine(const std::string& commit) {
    cudaDeviceProp properties;
    CheckOk(cudaGetDeviceProperties(&properties, 0), "asking");
    int driver = 0, runtime = 0;
    CheckOk(cudaDriverGetVersion(&driver), "asking");
    CheckOk(cudaRuntimeGetVersion(&runtime), "asking");
    std::printf(
        "%s, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d, runtime %d.%d, cuBLASLt %zu, commit %s\n\n",
        properties.name, properties.multiProcessorCount,
        static_cast<double>(properties.totalGlobalMem) / (1 << 30), driver / 1000, driver % 1000 / 10,
        runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion(), commit.c_str());
    std::printf("Prefill attention in whole steps: %s\n\n",
                cuda_->prefill_kernel() == kernels::cuda::PrefillKernel::kWgmma ? "wgmma" : "mma");
    std::printf("| %-46s | %-19s | %-29s | %-6s |\n|---|---|---|---|\n", "what", "measured", "limit",
                "ratio");
  }

  // Measures this GPU's limits: a plain copy, and cuBLASLt on a large square.
  void Limits() {
    const int64_t bytes = int64_t{2} << 30;
    auto a = Take(bytes), b = Take(bytes);
    const double copy = Seconds([&] {
      CheckOk(cudaMemcpyAsync(b.get(), a.get(), static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                              cuda_->stream()),
              "copying");
    });
    bandwidth_ = 2.0 * static_cast<double>(bytes) / copy;
    Row("copy on the device (read + write)", bandwidth_ / 1e9, "GB/s", bandwidth_ / 1e9, "itself");
    constexpr int64_t n = 8192;
    auto w = RandomWeight(n, n);
    auto x = TakeRandom(n * n, 1), y = Take(n * n * 2);
    const double product = Seconds([&] {
      cuda_->MatMul({x.get(), n, n, n, DType::kBF16}, *w, {}, {y.get(), n, n, n, DType::kBF16});
    });
    gemm_ = 2.0 * n * n * n / product;
    Row("cuBLASLt bf16, 8192^3", gemm_ / 1e12, "TFLOP/s", gemm_ / 1e12, "itself");
  }

  // Random keys and values of `tokens` tokens of each sequence, whose blocks lie one after the other in
  // `blocks`: zeros would flatter attention as they flatter products.
  void FillKv(std::span<const BlockId> blocks, int64_t sequences, int64_t tokens, kv::KvStore& store) {
    if (tokens == 0) return;
    auto qkv = TakeRandom(tokens * kQkv, 1);
    const auto each = blocks.size() / static_cast<size_t>(sequences);
    for (int64_t s = 0; s < sequences; ++s) {
      const SequenceRows rows{0, tokens, 0, blocks.subspan(static_cast<size_t>(s) * each, each)};
      for (int l = 0; l < store.layout().layers; ++l) {
        cuda_->RotateAndStore({qkv.get(), tokens, kQkv, kQkv, DType::kBF16}, kAttention, {},
                              {cos_.view(), sin_.view(), kHeadDim / 2}, {&rows, 1}, l, store);
      }
    }
  }

  struct Layer {
    std::unique_ptr<kernels::PackedMatrix> qkv, output, gate_up, down;
  };

  // One whole step of the 8B shape with random weights, as the decoder issues it. All layers have weights of
  // their own, so that none is found in a cache.
  double Step(int64_t sequences, int64_t rows_each, int64_t past, bool decode) {
    MakeModel();
    const int64_t rows = sequences * rows_each;
    const int64_t blocks_each = BlocksFor(past + rows_each);
    const kv::KvLayout layout{.layers = kLayers,
                              .kv_heads = kKvHeads,
                              .head_dim = kHeadDim,
                              .key_dtype = DType::kBF16,
                              .value_dtype = DType::kBF16};
    auto store = kv::KvStore::Create(layout, sequences * blocks_each, cuda_->memory());
    BATON_CHECK(store.ok()) << " " << store.status().ToString();
    std::vector<BlockId> blocks;
    for (int64_t b = 0; b < sequences * blocks_each; ++b) blocks.emplace_back(static_cast<uint32_t>(b));
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(3));
    FillKv(blocks, sequences, past, *store);
    std::vector<SequenceRows> batch;
    std::vector<TokenId> tokens;
    std::vector<int64_t> wanted;
    for (int64_t s = 0; s < sequences; ++s) {
      batch.push_back({s * rows_each, rows_each, past,
                       std::span(blocks).subspan(static_cast<size_t>(s * blocks_each),
                                                 static_cast<size_t>(blocks_each))});
      for (int64_t i = 0; i < rows_each; ++i)
        tokens.emplace_back(static_cast<int32_t>((s * 977 + i * 31) % kVocabulary));
      wanted.push_back((s + 1) * rows_each - 1);
    }
    const int64_t most = std::max<int64_t>(rows, decode ? kernels::cuda::RowBucket(rows) : rows);
    auto x = Take(most * kHidden * 4);
    auto normed = Take(most * kHidden * 2), qkv = Take(most * kQkv * 2), attended = Take(most * kQuery * 2);
    auto delta = Take(most * kHidden * 2), gate_up = Take(most * 2 * kIntermediate * 2),
         active = Take(most * kIntermediate * 2);
    auto last = Take(most * kHidden * 4),
         logits = Take(std::max<int64_t>(sequences, decode ? most : 0) * kVocabulary * 4);
    const auto matrix = [](auto& buffer, int64_t count, int64_t cols, DType dtype = DType::kBF16) {
      return Matrix{buffer.get(), count, cols, cols, dtype};
    };
    cuda_->ForgetRecordings();  // of other buffers
    const auto issue = [&] {
      const int64_t n = cuda_->Begin({.tokens = tokens,
                                      .sequences = batch,
                                      .logit_rows = wanted,
                                      .group = 4,
                                      .heads = kAttention.heads,
                                      .head_dim = kHeadDim,
                                      .decode = decode});
      const Matrix activations[] = {matrix(x, n, kHidden, DType::kF32)};
      const auto compute = [&] {
        Matrix residual = matrix(x, n, kHidden, DType::kF32);
        Matrix norm = matrix(normed, n, kHidden);
        cuda_->Embed(*embedding_, tokens, 0, residual);
        cuda_->RmsNorm(residual, ones_.view(), 1e-5f, norm);
        for (int l = 0; l < kLayers; ++l) {
          const Layer& layer = layers_[static_cast<size_t>(l)];
          cuda_->MatMul(norm, *layer.qkv, {}, matrix(qkv, n, kQkv));
          cuda_->RotateAndStore(matrix(qkv, n, kQkv), kAttention, {},
                                {cos_.view(), sin_.view(), kHeadDim / 2}, batch, l, *store);
          cuda_->Attention(matrix(qkv, n, kQkv).Columns(0, kQuery), kAttention, batch, l, *store,
                           matrix(attended, n, kQuery));
          cuda_->MatMul(matrix(attended, n, kQuery), *layer.output, {}, matrix(delta, n, kHidden));
          cuda_->AddRmsNorm(residual, matrix(delta, n, kHidden), ones_.view(), 1e-5f, norm);
          cuda_->MatMul(norm, *layer.gate_up, {}, matrix(gate_up, n, 2 * kIntermediate));
          cuda_->SwiGlu(matrix(gate_up, n, 2 * kIntermediate), matrix(active, n, kIntermediate));
          cuda_->MatMul(matrix(active, n, kIntermediate), *layer.down, {}, matrix(delta, n, kHidden));
          cuda_->AddRmsNorm(residual, matrix(delta, n, kHidden), ones_.view(), 1e-5f, norm);
        }
        const int64_t kept = decode ? n : sequences;
        Matrix end = norm;
        if (!decode) {
          end = matrix(last, kept, kHidden);
          cuda_->GatherRows(norm, wanted, end);
        }
        cuda_->MatMul(end, *head_, {}, matrix(logits, kept, kVocabulary, DType::kF32));
      };
      cuda_->Prepare(activations, compute);
      cuda_->Run(activations, compute);
      cuda_->End();
    };
    return Seconds(issue);
  }

  void MakeModel() {
    if (!layers_.empty()) return;
    embedding_ = RandomWeight(kVocabulary, kHidden);
    head_ = RandomWeight(kVocabulary, kHidden);
    for (int l = 0; l < kLayers; ++l) {
      layers_.push_back({RandomWeight(kQkv, kHidden), RandomWeight(kHidden, kQuery),
                         RandomWeight(2 * kIntermediate, kHidden), RandomWeight(kHidden, kIntermediate)});
    }
    ones_ = *kernels::Values::Place(std::vector<float>(kHidden, 1.0f), cuda_->memory());
  }

  // Judged by how long it takes to read the weights and the KV once, at the bandwidth of a copy.
  void Decode() {
    for (int64_t batch : {1, 8, 64, 256}) {
      const int64_t past = 1024;
      const double seconds = Step(batch, 1, past, true);
      Row("8B decode, batch " + std::to_string(batch) + ", 1,024 keys: " + std::to_string(seconds * 1e3) +
              " ms",
          DecodeBytes(batch, past) / seconds / 1e9, "GB/s", bandwidth_ / 1e9, "copy");
    }
  }

  void Prefill() {
    for (const auto& [sequences, rows] :
         {std::pair<int64_t, int64_t>{1, 1024}, {1, 4096}, {4, 2048}, {1, 8192}}) {
      const double seconds = Step(sequences, rows, 0, false);
      const double tokens = static_cast<double>(sequences * rows);
      Row("8B prefill, " + std::to_string(sequences) + " x " + std::to_string(rows) + ": " +
              std::to_string(static_cast<int64_t>(tokens / seconds)) + " tok/s",
          PrefillFlops(sequences, rows) / seconds / 1e12, "TFLOP/s", gemm_ / 1e12, "cuBLASLt");
    }
  }

  void AttentionKernels() {
    for (const DType dtype : {DType::kBF16, DType::kF8, DType::kI8}) {
      const std::string name(tensor::Name(dtype));
      for (int64_t rows : {2048, 8192}) {
        // Both kernels where the GPU has both; wgmma only if it proved itself at start.
        const auto chosen = cuda_->prefill_kernel();
        for (const auto& [kernel, called] : {std::pair(kernels::cuda::PrefillKernel::kMma, "mma"),
                                             {kernels::cuda::PrefillKernel::kWgmma, "wgmma"}}) {
          if (kernel != kernels::cuda::PrefillKernel::kMma && kernel != chosen) continue;
          cuda_->set_prefill_kernel(kernel);
          const double seconds = Attend(std::vector<int64_t>{0}, rows, dtype);
          Row(std::string("prefill attention, ") + called + ", 1 x " + std::to_string(rows) + ", KV " + name,
              AttentionFlops(rows) / seconds / 1e12, "TFLOP/s", gemm_ / 1e12, "cuBLASLt");
        }
        cuda_->set_prefill_kernel(chosen);
      }
      for (const auto& [batch, past] : {std::pair<int64_t, int64_t>{1, 8192}, {16, 4096}, {64, 2048}}) {
        const double seconds = Attend(std::vector<int64_t>(static_cast<size_t>(batch), past), 1, dtype);
        Row("decode attention, " + std::to_string(batch) + " x " + std::to_string(past) + " keys, KV " + name,
            AttentionBytes(LayoutOf(dtype), batch, past) / seconds / 1e9, "GB/s", bandwidth_ / 1e9, "copy");
      }
      // One long row among short ones decides how many splits are launched.
      std::vector<int64_t> mixed(64, 512);
      mixed.front() = 8192;
      const double seconds = Attend(mixed, 1, dtype);
      const double bytes =
          AttentionBytes(LayoutOf(dtype), 63, 512) + AttentionBytes(LayoutOf(dtype), 1, 8192);
      Row("decode attention, 63 x 512 and 1 x 8192 keys, KV " + name, bytes / seconds / 1e9, "GB/s",
          bandwidth_ / 1e9, "copy");
    }
  }

  // The draws after a step of sampled answers, until the host has the tokens. Judged by how long it takes to
  // read the logits once.
  void Draws() {
    kernels::DeviceSampler& sampler = *cuda_->sampler();
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> row(static_cast<size_t>(kVocabulary));
    for (float& logit : row) logit = normal(random);
    constexpr auto kMaskWords = static_cast<int32_t>(kVocabulary / 32);
    const std::vector<uint32_t> mask(kMaskWords, 0x5555FFFF);
    for (const int64_t rows : {1, 8, 64}) {
      auto logits = Take(rows * kVocabulary * 4);
      for (int64_t r = 0; r < rows; ++r) {
        const absl::Status filled =
            cuda_->memory().Upload(row.data(), logits.get() + r * kVocabulary * 4, kVocabulary * 4);
        BATON_CHECK(filled.ok()) << " " << filled.ToString();
      }
      BATON_CHECK(sampler.ReservePenaltySlots(static_cast<int32_t>(rows), kVocabulary));
      for (const auto& [what, draw] : {std::pair<const char*, kernels::RowDraw>("greedy", {.temperature = 0}),
                                       {"top-p 0.95", {.uniform = 0.5, .top_p = 0.95f}},
                                       {"top-k 50", {.uniform = 0.5, .top_k = 50}},
                                       {"penalties", {.uniform = 0.5, .slot = 0, .presence_penalty = 1e-3f}},
                                       {"mask", {.uniform = 0.5, .mask_words = kMaskWords}}}) {
        std::vector<kernels::RowDraw> draws(static_cast<size_t>(rows), draw);
        std::vector<TokenId> tokens(draws.size());
        for (int64_t r = 0; r < rows; ++r) {
          draws[static_cast<size_t>(r)].row = static_cast<int32_t>(r);
          if (draw.slot >= 0) draws[static_cast<size_t>(r)].slot = static_cast<int32_t>(r);
        }
        const double seconds = Seconds([&] {
          sampler.Launch({logits.get(), rows, kVocabulary, kVocabulary, DType::kF32},
                         {.rows = draws, .masks = mask});
          sampler.Await(tokens);
        });
        Row("draw, " + std::string(what) + ", " + std::to_string(rows) +
                " rows: " + std::to_string(static_cast<int64_t>(seconds * 1e6)) + " us",
            static_cast<double>(rows * kVocabulary * 4) / seconds / 1e9, "GB/s", bandwidth_ / 1e9, "copy");
      }
    }
  }

  // The products of decode steps one by one, by the weights that they read. Each layer in turn, so that no
  // weight is found in a cache. Behind each, what the quickest of the algorithms that cuBLASLt suggests would
  // gain on the first, which is the one that is taken.
  void Products() {
    MakeModel();
    const auto gemm = *kernels::cuda::Gemm::Create(cuda_->stream(), cuda_->memory(), kSuggestions);
    const auto measure = [&](const char* name, int64_t features, int64_t depth, DType result, auto&& weight) {
      for (const int64_t rows : {1, 2, 4, 8, 16, 64}) {
        auto x = TakeRandom(rows * depth, 1), out = Take(rows * features * 4);
        size_t layer = 0;
        const double seconds = Seconds([&] {
          cuda_->MatMul({x.get(), rows, depth, depth, DType::kBF16}, weight(layer++ % kLayers), {},
                        {out.get(), rows, features, features, result});
        });
        Row("product, " + std::string(name) + ", " + std::to_string(rows) + " rows",
            static_cast<double>(features * depth * 2) / seconds / 1e9, "GB/s", bandwidth_ / 1e9, "copy");
        Suggestions(*gemm, name, {x.get(), rows, depth, depth, DType::kBF16}, features,
                    {out.get(), rows, features, features, result});
      }
    };
    using Weight = kernels::PackedMatrix;
    measure("qkv", kQkv, kHidden, DType::kBF16, [&](size_t l) -> const Weight& { return *layers_[l].qkv; });
    measure("output", kHidden, kQuery, DType::kBF16,
            [&](size_t l) -> const Weight& { return *layers_[l].output; });
    measure("gate and up", 2 * kIntermediate, kHidden, DType::kBF16,
            [&](size_t l) -> const Weight& { return *layers_[l].gate_up; });
    measure("down", kHidden, kIntermediate, DType::kBF16,
            [&](size_t l) -> const Weight& { return *layers_[l].down; });
    measure("head", kVocabulary, kHidden, DType::kF32, [&](size_t) -> const Weight& { return *head_; });
  }

  // The quickest of the suggestions for a product against the first, in one run.
  void Suggestions(kernels::cuda::Gemm& gemm, const char* name, Matrix x, int64_t features, Matrix out) {
    const int64_t bytes = features * x.cols * 2;
    // As many weights by turns as no cache holds.
    const int64_t copies = std::max<int64_t>(1, (int64_t{256} << 20) / bytes);
    auto weights = TakeRandom(copies * features * x.cols, 0.02f);
    double first = 0, best = 0;
    size_t quickest = 0, found = 0;
    for (; gemm.RunBy(found, x, weights.get(), features, out); ++found) {
      int64_t copy = 0;
      const double seconds = Seconds(
          [&] { (void)gemm.RunBy(found, x, weights.get() + copy++ % copies * bytes, features, out); }, 0.02);
      if (found == 0) first = best = seconds;
      if (seconds < best) {
        best = seconds;
        quickest = found;
      }
    }
    Row("product, " + std::string(name) + ", " + std::to_string(x.rows) + " rows: number " +
            std::to_string(quickest + 1) + " of " + std::to_string(found),
        static_cast<double>(bytes) / best / 1e9, "GB/s", static_cast<double>(bytes) / first / 1e9,
        "first choice");
  }

  // A layout of several layers, so that the KV of one is not still in the cache when its turn comes again.
  static kv::KvLayout LayoutOf(DType dtype) {
    return {
        .layers = 8, .kv_heads = kKvHeads, .head_dim = kHeadDim, .key_dtype = dtype, .value_dtype = dtype};
  }

  // `pasts`: of each sequence.
  double Attend(const std::vector<int64_t>& pasts, int64_t rows, DType dtype) {
    const auto sequences = std::ssize(pasts);
    const int64_t longest = std::ranges::max(pasts) + rows, blocks_each = BlocksFor(longest);
    auto store = *kv::KvStore::Create(LayoutOf(dtype), sequences * blocks_each, cuda_->memory());
    std::vector<BlockId> blocks;
    for (int64_t b = 0; b < sequences * blocks_each; ++b) blocks.emplace_back(static_cast<uint32_t>(b));
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
    FillKv(blocks, sequences, longest, store);
    std::vector<SequenceRows> batch;
    std::vector<TokenId> tokens(static_cast<size_t>(sequences * rows), TokenId(1));
    for (int64_t s = 0; s < sequences; ++s) {
      batch.push_back({s * rows, rows, pasts[static_cast<size_t>(s)],
                       std::span(blocks).subspan(static_cast<size_t>(s * blocks_each),
                                                 static_cast<size_t>(blocks_each))});
    }
    auto q = TakeRandom(sequences * rows * kQuery, 1), out = Take(sequences * rows * kQuery * 2);
    int layer = 0;
    cuda_->Begin({.tokens = tokens, .sequences = batch, .logit_rows = {}, .group = 4});
    const double seconds = Seconds([&] {
      cuda_->Attention({q.get(), sequences * rows, kQuery, kQuery, DType::kBF16}, kAttention, batch,
                       layer++ % 8, store, {out.get(), sequences * rows, kQuery, kQuery, DType::kBF16});
    });
    cuda_->End();
    return seconds;
  }

  static constexpr int kSuggestions = 8;

  const bool quick_;
  std::unique_ptr<kernels::cuda::CudaKernels> cuda_;
  double bandwidth_ = 0, gemm_ = 0;
  std::vector<Layer> layers_;
  std::unique_ptr<kernels::PackedMatrix> embedding_, head_;
  kernels::Values ones_, cos_, sin_;
};

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app("GPU backend against the machine's limits");
  std::string commit = "unknown";
  bool quick = false;
  app.add_option("--commit", commit, "What was measured");
  app.add_flag("--quick", quick, "Fewer repetitions");
  std::vector<std::string> only;
  app.add_option("--only", only, "These parts, beside the limits")
      ->delimiter(',')
      ->check(CLI::IsMember({"decode", "prefill", "attention", "draw", "products"}));
  CLI11_PARSE(app, argc, argv);
  baton::Bench(quick).Run(commit, only);
}
