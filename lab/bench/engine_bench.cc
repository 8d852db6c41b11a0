#include "lab/bench/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "engine/device/thread_pool.h"
#include "engine/model/quantizer.h"
#include "engine/model/summary.h"
#include "lab/bench/engine_runs.h"
#include "lab/bench/machine_limits.h"

namespace baton::lab::bench {
namespace {

using model::WeightPrecision;

// The precision asked for, else that of most stored matrices.
WeightPrecision MainPrecision(const model::ModelSummary& summary, WeightPrecision asked) {
  if (asked != WeightPrecision::kStored) return asked;
  std::pair<int64_t, std::string> most;
  for (const auto& [name, matrices] : summary.stored) most = std::max(most, {matrices, name});
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == most.second) return precision;
  }
  return WeightPrecision::kStored;
}

// The two yardsticks, measured on one rank's device. On the host the product kernel multiplies a matrix that
// stays in the second-level cache with as many rows as a chunk of a prompt has, and the memory is read from
// end to end. On a GPU the product is large, and the memory is copied: its reads and writes count.
class Limits {
 public:
  static absl::StatusOr<std::unique_ptr<Limits>> Make(const engine::EngineOptions& engine,
                                                      WeightPrecision precision, int threads) {
    auto limits = std::unique_ptr<Limits>(new Limits(threads));
    kernels::CudaOptions cuda = engine.cuda;
    if (!engine.devices.empty()) cuda.device = engine.devices.front();
    BATON_ASSIGN_OR_RETURN(limits->kernels_, kernels::MakeKernels(engine.backend, threads, cuda));
    const bool host = limits->kernels_->memory().host();
    limits->size_ = host ? kOnHost : kOnGpu;
    BATON_RETURN_IF_ERROR(limits->MakeWeight(host ? precision : WeightPrecision::kBF16, threads));
    BATON_RETURN_IF_ERROR(limits->MakeRows());
    return limits;
  }

  // Where the yardsticks were measured.
  std::string device() const { return kernels_->memory().name(); }
  // Operations per second: the best of a few rounds, since a limit is not what a neighbour leaves of it.
  double ProductRate() {
    const Matrix in = View(in_.get(), size_.rows, size_.depth, kernels_->activation_dtype());
    const Matrix out = View(out_.get(), size_.rows, size_.features, kernels_->activation_dtype());
    return Best(2.0 * static_cast<double>(size_.rows * size_.features * size_.depth) * size_.products, [&] {
      for (int i = 0; i < size_.products; ++i) kernels_->MatMul(in, *packed_, {}, out);
    });
  }
  // Bytes per second.
  double ReadRate() {
    if (host_memory_.has_value()) {
      return Best(static_cast<double>(host_memory_->data().size_bytes()),
                  [&] { (void)ReadAll(*pool_, host_memory_->data()); });
    }
    const Matrix from = View(copied_.get(), kCopiedRows, kCopiedColumns, tensor::DType::kF32);
    const Matrix to = View(copy_.get(), kCopiedRows, kCopiedColumns, tensor::DType::kF32);
    return Best(2.0 * kCopiedRows * kCopiedColumns * sizeof(float) * kCopies, [&] {
      for (int i = 0; i < kCopies; ++i) kernels_->GatherRows(from, copied_rows_, to);
    });
  }

 private:
  using Matrix = kernels::Matrix;
  struct Size {
    int64_t rows, features, depth;
    int products;  // in a round
  };
  static constexpr Size kOnHost = {256, 512, 1024, 8}, kOnGpu = {4096, 8192, 8192, 4};
  // Far larger than a GPU's cache.
  static constexpr int64_t kCopiedRows = 8192, kCopiedColumns = 8192;
  static constexpr int kCopies = 8;

  explicit Limits(int threads) : threads_(threads) {}

  absl::Status MakeWeight(WeightPrecision precision, int threads) {
    std::vector<float> numbers(static_cast<size_t>(size_.features * size_.depth));
    uint64_t state = 1;
    for (float& number : numbers) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      number = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-34f;
    }
    const kernels::WeightView wide{numbers.data(), tensor::DType::kF32, size_.features, size_.depth};
    model::Quantizer quantizer(precision, threads);
    if (kernels_->takes_transforms()) quantizer.TransformColumns();
    model::ConvertedMatrix converted;
    converted.view = wide;
    if (precision != WeightPrecision::kStored) {
      BATON_ASSIGN_OR_RETURN(converted, quantizer.Convert("limit", wide, {.begin = 0, .count = size_.depth},
                                                          kernels::TransformBlock(size_.depth)));
    }
    BATON_ASSIGN_OR_RETURN(packed_, kernels_->Pack({&converted.view, 1}));
    return absl::OkStatus();
  }

  absl::Status MakeRows() {
    device::Memory& memory = kernels_->memory();
    const int64_t value = tensor::SizeOf(kernels_->activation_dtype());
    BATON_ASSIGN_OR_RETURN(in_, memory.Allocate(size_.rows * size_.depth * value));
    BATON_ASSIGN_OR_RETURN(out_, memory.Allocate(size_.rows * size_.features * value));
    // Bytes that are small numbers of every dtype, no two rows alike: a GPU multiplies zeros at a higher
    // clock.
    std::vector<std::byte> bytes(static_cast<size_t>(size_.rows * size_.depth * value));
    uint64_t state = 2;
    for (size_t i = 0; i < bytes.size(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const bool high = i % static_cast<size_t>(value) == static_cast<size_t>(value) - 1;
      bytes[i] = static_cast<std::byte>(high ? 0x3C | (state >> 56 & 0x80) : state >> 56);
    }
    BATON_RETURN_IF_ERROR(memory.Upload(bytes.data(), in_.get(), std::ssize(bytes)));
    if (memory.host()) {
      pool_.emplace(threads_);
      host_memory_.emplace(int64_t{32} << 20);
      return absl::OkStatus();
    }
    BATON_ASSIGN_OR_RETURN(copied_, memory.Allocate(kCopiedRows * kCopiedColumns * int64_t{sizeof(float)}));
    BATON_ASSIGN_OR_RETURN(copy_, memory.Allocate(kCopiedRows * kCopiedColumns * int64_t{sizeof(float)}));
    for (int64_t row = 0; row < kCopiedRows; ++row) copied_rows_.push_back(row);
    return absl::OkStatus();
  }

  static Matrix View(std::byte* data, int64_t rows, int64_t cols, tensor::DType dtype) {
    return {.data = data, .rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
  }

  double Best(double amount, const std::function<void()>& work) {
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      best = std::max(best, amount / SecondsOf(clock_, [&] {
                              work();
                              float last = 0;  // what was issued has been done when it is here
                              const absl::Status done =
                                  kernels_->memory().Download(out_.get(), &last, sizeof(last));
                              BATON_CHECK(done.ok()) << done;
                            }));
    }
    return best;
  }

  const int threads_;
  MonotonicClock clock_;
  std::unique_ptr<kernels::Kernels> kernels_;
  Size size_ = kOnHost;
  std::unique_ptr<kernels::PackedMatrix> packed_;
  device::Memory::Buffer in_, out_;
  // On the host.
  std::optional<device::ThreadPool> pool_;
  std::optional<ReadBuffer> host_memory_;
  // On a GPU.
  device::Memory::Buffer copied_, copy_;
  std::vector<int64_t> copied_rows_;
};

// The blocks of the largest run.
int64_t BlocksOf(const EngineBenchOptions& options) {
  int64_t most = 1;
  for (const int prompt : options.prompts) most = std::max(most, BlocksFor(prompt));
  for (const int depth : options.depths) {
    for (const int batch : options.batches) most = std::max(most, EngineRuns::BlocksOfStep(batch, depth));
  }
  return most;
}

}  // namespace

absl::StatusOr<EngineBenchResult> RunEngineBench(const EngineBenchOptions& options) {
  const MonotonicClock clock;
  BATON_ASSIGN_OR_RETURN(const model::ModelSummary summary,
                         model::ModelSummary::Load(options.engine.model_folder));
  for (const std::vector<int>* lengths : {&options.prompts, &options.depths}) {
    for (const int length : *lengths) {
      if (length >= summary.config.context) {
        return absl::InvalidArgumentError(
            fmt::format("{} tokens are more than the model's context of {}", length, summary.config.context));
      }
    }
  }
  EngineBenchResult result;
  engine::EngineOptions loading = options.engine;
  result.threads = loading.threads > 0 ? loading.threads : device::UsableCores();
  const bool gpu = loading.backend == "cuda";
  const int64_t blocks = BlocksOf(options);
  loading.kv_blocks = blocks;
  const auto say = [&](const std::string& what) {
    if (options.progress) options.progress(what);
  };
  say("loading");
  std::unique_ptr<engine::Engine> engine;
  absl::Status loaded;
  result.load_seconds = SecondsOf(clock, [&] {
    auto made = engine::Engine::Load(loading);
    loaded = made.status();
    if (made.ok()) engine = *std::move(made);
  });
  BATON_RETURN_IF_ERROR(loaded);
  result.numerics = engine->fingerprint().numerics;
  result.weight_bytes = engine->weight_bytes();
  const kv::KvLayout& layout = engine->store().layout();
  const int64_t token_bytes = summary.KvBytesPerToken(layout.key_dtype, layout.value_dtype);
  result.kv_bytes = blocks * kBlockTokens * token_bytes;
  const model::ModelConfig& config = engine->config();
  result.token_products = summary.matrix_values - summary.IdleValues() - config.vocabulary * config.hidden;
  BATON_ASSIGN_OR_RETURN(const auto limits,
                         Limits::Make(loading, MainPrecision(summary, loading.weights), result.threads));
  result.device = limits->device();
  // Each rank has a GPU of its own, and a part of the same cores.
  const double ranks = gpu ? loading.tp : 1;
  EngineRuns runs(*engine, blocks, clock);
  for (const int prompt : options.prompts) result.runs.push_back({.prompt = prompt});
  for (const int depth : options.depths) {
    for (const int batch : options.batches) {
      const double kv = static_cast<double>(batch) * depth * static_cast<double>(token_bytes);
      const double weights = static_cast<double>(summary.BytesPerToken(loading.weights));
      result.runs.push_back({.batch = batch, .depth = depth, .bytes = weights + kv});
    }
  }
  // Repetition by repetition, so that a slow minute of the machine meets all runs.
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (EngineRun& run : result.runs) {
      double limit = 0;
      if (run.prompt > 0) {
        say(fmt::format("prompt of {}, {} of {}", run.prompt, repetition + 1, options.repetitions));
        result.product_rate.push_back(ranks * limits->ProductRate());
        limit = 2.0 * static_cast<double>(result.token_products * run.prompt) / result.product_rate.back();
        if (gpu && repetition == 0)
          runs.Prompt(run.prompt, options.chunk_tokens);  // it makes room, and chooses products
        run.seconds.push_back(runs.Prompt(run.prompt, options.chunk_tokens));
      } else {
        say(fmt::format("decode, {} at {}, {} of {}", run.batch, run.depth, repetition + 1,
                        options.repetitions));
        constexpr int kSteps = 4;
        result.read_rate.push_back(ranks * limits->ReadRate());
        limit = run.bytes / result.read_rate.back();
        if (gpu && repetition == 0) runs.Step(run.batch, run.depth, 1);  // it is recorded
        run.seconds.push_back(runs.Step(run.batch, run.depth, kSteps));
      }
      run.of_limit.push_back(limit / run.seconds.back());
    }
  }
  return result;
}

}  // namespace baton::lab::bench
