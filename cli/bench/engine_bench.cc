#include "cli/bench/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "cli/bench/machine_limits.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/device/thread_pool.h"
#include "common/model/quantizer.h"
#include "common/model/summary.h"

namespace baton::cli::bench {
namespace {

using model::WeightPrecision;

double SecondsOf(const Clock& clock, const std::function<void()>& work) {
  const absl::Time begin = clock.Now();
  work();
  return absl::ToDoubleSeconds(clock.Now() - begin);
}

// What most matrices of a folder are kept as.
WeightPrecision MainPrecision(const model::ModelSummary& summary, WeightPrecision asked) {
  if (asked != WeightPrecision::kStored) return asked;
  std::pair<int64_t, std::string> most;
  for (const auto& [name, matrices] : summary.stored) most = std::max(most, {matrices, name});
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == most.second) return precision;
  }
  return WeightPrecision::kStored;  // f32
}

// The two yardsticks. The product kernel multiplies a matrix that stays in the second-level cache with as
// many rows as a chunk of a prompt has; the memory is read from end to end.
class Limits {
 public:
  static absl::StatusOr<std::unique_ptr<Limits>> Make(WeightPrecision precision, int threads) {
    auto limits = std::unique_ptr<Limits>(new Limits(threads));
    BATON_ASSIGN_OR_RETURN(limits->kernels_, kernels::MakeCpuKernels({.threads = threads, .isa = ""}));
    std::vector<float> numbers(static_cast<size_t>(kFeatures * kDepth));
    uint64_t state = 1;
    for (float& number : numbers) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      number = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-34f;
    }
    const kernels::WeightView wide{numbers.data(), tensor::DType::kF32, kFeatures, kDepth};
    model::Quantizer quantizer(precision, threads);
    model::ConvertedMatrix converted{.view = wide};
    if (precision != WeightPrecision::kStored) {
      BATON_ASSIGN_OR_RETURN(converted, quantizer.Convert("limit", wide, {.begin = 0, .count = kDepth}));
    }
    BATON_ASSIGN_OR_RETURN(limits->packed_, limits->kernels_->Pack({&converted.view, 1}));
    return limits;
  }

  // The best of a few rounds: a limit is not what a neighbour leaves of it.
  double ProductRate() {
    constexpr double kOperations = 2.0 * kRows * kFeatures * kDepth * kProducts;
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      best = std::max(best, kOperations / SecondsOf(clock_, [&] {
                              for (int i = 0; i < kProducts; ++i) {
                                kernels_->MatMul({in_.data(), kRows, kDepth, kDepth}, *packed_, {},
                                                 {out_.data(), kRows, kFeatures, kFeatures});
                              }
                            }));
    }
    return best;
  }
  double ReadRate() {
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      int64_t bytes = 0;
      const double seconds = SecondsOf(clock_, [&] { bytes = ReadAll(pool_, memory_.data()); });
      best = std::max(best, static_cast<double>(bytes) / seconds);
    }
    return best;
  }

 private:
  static constexpr int64_t kRows = 256, kFeatures = 512, kDepth = 1024;
  static constexpr int kProducts = 8;
  explicit Limits(int threads)
      : pool_(threads), memory_(int64_t{32} << 20), in_(kRows * kDepth, 0.5f), out_(kRows * kFeatures) {}

  MonotonicClock clock_;
  device::ThreadPool pool_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<kernels::PackedMatrix> packed_;
  ReadBuffer memory_;
  std::vector<float> in_, out_;
};

// Runs on the engine, in blocks that it takes from the pool once.
class Runs {
 public:
  Runs(engine::Engine& engine, int64_t blocks, const Clock& clock)
      : engine_(engine), clock_(clock), blocks_(*engine.pool().Allocate(blocks)) {
    // Pages that were never written are all one page of zeros, which no memory has to be read for.
    for (const BlockId block : blocks_) {
      std::memset(engine_.store().block(block), 0x3C,
                  static_cast<size_t>(engine_.store().layout().block_bytes()));
    }
  }
  ~Runs() { engine_.pool().Release(blocks_); }

  double Prompt(int64_t tokens, int64_t chunk) {
    Fill(tokens);
    return SecondsOf(clock_, [&] {
      for (int64_t first = 0; first < tokens; first += chunk) {
        const int64_t rows = std::min(chunk, tokens - first);
        batch_.Clear();
        batch_.Add(
            {.tokens = std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
             .first_position = first,
             .blocks = blocks_,
             .logit_rows = first + rows == tokens ? 1 : 0});
        engine_.Forward(batch_, [](int) {});
      }
    });
  }
  // The mean of so many steps, each at the same depth.
  double Step(int64_t batch, int64_t depth, int steps) {
    Fill(batch);
    const auto each = static_cast<size_t>(BlocksFor(depth + 1));
    return SecondsOf(clock_,
                     [&] {
                       for (int step = 0; step < steps; ++step) {
                         batch_.Clear();
                         for (size_t s = 0; s < static_cast<size_t>(batch); ++s) {
                           batch_.Add({.tokens = std::span(tokens_).subspan(s, 1),
                                       .first_position = depth,
                                       .blocks = std::span(blocks_).subspan(s * each, each),
                                       .logit_rows = 1});
                         }
                         engine_.Forward(batch_, [](int) {});
                       }
                     }) /
           steps;
  }

 private:
  void Fill(int64_t count) {
    tokens_.clear();
    for (int64_t i = 0; i < count; ++i) {
      tokens_.emplace_back(static_cast<int32_t>(i * 7919 % engine_.config().vocabulary));
    }
  }

  engine::Engine& engine_;
  const Clock& clock_;
  const std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;
  engine::Batch batch_;
};

// The blocks of the largest run.
int64_t BlocksOf(const EngineBenchOptions& options) {
  int64_t most = 1;
  for (const int prompt : options.prompts) most = std::max(most, BlocksFor(prompt));
  for (const int depth : options.depths) {
    for (const int batch : options.batches) most = std::max(most, batch * BlocksFor(depth + 1));
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
  const auto width = [](const std::optional<tensor::DType>& dtype) {
    return dtype.value_or(tensor::DType::kF32);
  };
  const int64_t token_bytes = summary.KvBytesPerToken(width(loading.key_dtype), width(loading.value_dtype));
  const int64_t blocks = BlocksOf(options);
  loading.kv_bytes = result.kv_bytes = blocks * kBlockTokens * token_bytes;
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
  const model::ModelConfig& config = engine->config();
  result.token_products = summary.matrix_values - summary.IdleValues() - config.vocabulary * config.hidden;
  BATON_ASSIGN_OR_RETURN(const auto limits,
                         Limits::Make(MainPrecision(summary, loading.weights), result.threads));
  Runs runs(*engine, blocks, clock);
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
        result.product_rate.push_back(limits->ProductRate());
        limit = 2.0 * static_cast<double>(result.token_products * run.prompt) / result.product_rate.back();
        run.seconds.push_back(runs.Prompt(run.prompt, options.chunk_tokens));
      } else {
        say(fmt::format("decode, {} at {}, {} of {}", run.batch, run.depth, repetition + 1,
                        options.repetitions));
        constexpr int kSteps = 4;
        result.read_rate.push_back(limits->ReadRate());
        limit = run.bytes / result.read_rate.back();
        run.seconds.push_back(runs.Step(run.batch, run.depth, kSteps));
      }
      run.of_limit.push_back(limit / run.seconds.back());
    }
  }
  return result;
}

}  // namespace baton::cli::bench
