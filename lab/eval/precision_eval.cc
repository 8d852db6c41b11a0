#include "lab/eval/precision_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "engine/device/thread_pool.h"
#include "lab/bench/engine_report.h"
#include "lab/bench/engine_runs.h"
#include "text/config/config.h"

namespace baton::lab {
namespace {

using model::WeightPrecision;
using tensor::DType;

constexpr auto kPrompt = MeasuredPrecision::kPrompt, kBatch = MeasuredPrecision::kBatch,
               kDepth = MeasuredPrecision::kDepth;
constexpr int kSteps = 4;

constexpr WeightPrecision kWeights[] = {WeightPrecision::kStored, WeightPrecision::kF32,
                                        WeightPrecision::kBF16, WeightPrecision::kInt8,
                                        WeightPrecision::kInt4};
constexpr std::pair<DType, DType> kKv[] = {{DType::kBF16, DType::kBF16},
                                           {DType::kI8, DType::kI8},
                                           {DType::kI8, DType::kI4},
                                           {DType::kI4, DType::kI4}};

// The precision is one that the backend, the model or the memory does not take, and others may do.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
         absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
}

class Evaluation {
 public:
  static absl::StatusOr<std::unique_ptr<Evaluation>> Make(const std::vector<std::vector<TokenId>>& windows,
                                                          const PrecisionEvalOptions& options) {
    std::unique_ptr<Evaluation> made(new Evaluation(windows, options));
    made->Say("loading the reference");
    engine::EngineOptions reference = made->OptionsOf({});
    reference.kv_blocks = BlocksFor(made->longest_);
    if (!options.reference.empty()) reference.model_folder = options.reference;
    BATON_ASSIGN_OR_RETURN(made->reference_, engine::Engine::Load(reference));
    return made;
  }

  // One row more.
  absl::Status Add(const Precision& precision) {
    MeasuredPrecision row{.precision = precision};
    const std::string name =
        fmt::format("--weights {}, KV in {}", model::Name(precision.weights), KvName(precision));
    Say(name + ": loading");
    const auto loaded = engine::Engine::Load(OptionsOf(precision));
    if (!loaded.ok()) {
      // The model as it is stored has to load.
      if (measured_.empty() || !IsRefusal(loaded.status())) return loaded.status();
      row.not_measured = std::string(loaded.status().message());
      measured_.push_back(std::move(row));
      return absl::OkStatus();
    }
    engine::Engine& engine = **loaded;
    const std::string digest = engine.fingerprint().Digest();
    if (const auto same = std::ranges::find(digests_, digest, &std::pair<std::string, Precision>::first);
        same != digests_.end()) {
      row.not_measured = fmt::format("the same as {}", model::Name(same->second.weights));
      measured_.push_back(std::move(row));
      return absl::OkStatus();
    }
    digests_.emplace_back(digest, precision);
    BATON_RETURN_IF_ERROR(CheckFits(engine.config()));
    Say(name + ": comparing");
    row.distance = Compare(*reference_, engine, windows_, threads_);
    if (!std::isfinite(row.distance.mean)) {
      row.not_measured = "its logits are no numbers";
      if (measured_.empty()) return absl::FailedPreconditionError("the model's logits are no numbers");
      measured_.push_back(std::move(row));
      return absl::OkStatus();
    }
    row.weight_bytes = engine.weight_bytes();
    row.kv_token_bytes = engine.store().layout().block_bytes() / kBlockTokens;
    Say(name + ": timing");
    Time(engine, row);
    measured_.push_back(std::move(row));
    return absl::OkStatus();
  }

  // The smallest combination within the limit, which is measured if it was not. KL divergences of weights and
  // of KV add up about; nothing is recommended by that.
  absl::Status Recommend() {
    std::vector<MeasuredPrecision> candidates;
    const size_t rows = measured_.size();
    for (size_t w = 0; w < rows; ++w) {
      for (size_t k = 0; k < rows; ++k) {
        const MeasuredPrecision &of_weights = measured_[w], &of_kv = measured_[k];
        const Precision exact{.weights = of_weights.precision.weights};
        if (!of_weights.not_measured.empty() || !of_kv.not_measured.empty() ||
            of_weights.precision != exact || of_kv.precision.weights != WeightPrecision::kStored) {
          continue;
        }
        MeasuredPrecision both{.precision = {.weights = of_weights.precision.weights,
                                             .keys = of_kv.precision.keys,
                                             .values = of_kv.precision.values}};
        both.distance.mean =
            of_weights.distance.mean + std::max(0.0, of_kv.distance.mean - measured_.front().distance.mean);
        both.weight_bytes = of_weights.weight_bytes;
        both.kv_token_bytes = of_kv.kv_token_bytes;
        candidates.push_back(std::move(both));
      }
    }
    std::ranges::stable_sort(candidates, {}, &MeasuredPrecision::bytes);
    for (const MeasuredPrecision& candidate : candidates) {
      if (candidate.distance.mean > options_.max_kl) continue;
      auto row = std::ranges::find(measured_, candidate.precision, &MeasuredPrecision::precision);
      if (row == measured_.end()) {
        BATON_RETURN_IF_ERROR(Add(candidate.precision));
        row = std::prev(measured_.end());
      }
      if (row->not_measured.empty() && row->distance.mean <= options_.max_kl) {
        recommended_ = static_cast<size_t>(row - measured_.begin());
        break;
      }
    }
    return absl::OkStatus();
  }

  PrecisionEval Take() && { return {.measured = std::move(measured_), .recommended = recommended_}; }

 private:
  Evaluation(const std::vector<std::vector<TokenId>>& windows, const PrecisionEvalOptions& options)
      : windows_(windows),
        options_(options),
        threads_(options.engine.threads > 0 ? options.engine.threads : device::UsableCores()) {
    for (const std::vector<TokenId>& window : windows) longest_ = std::max(longest_, std::ssize(window));
    blocks_ =
        std::max({BlocksFor(longest_), BlocksFor(kPrompt), bench::EngineRuns::BlocksOfStep(kBatch, kDepth)});
  }

  engine::EngineOptions OptionsOf(const Precision& precision) const {
    engine::EngineOptions options = options_.engine;
    options.kv_blocks = blocks_;
    options.weights = precision.weights;
    options.key_dtype = precision.keys;
    options.value_dtype = precision.values;
    return options;
  }

  // That the windows can be compared.
  absl::Status CheckFits(const model::ModelConfig& config) const {
    const model::ModelConfig& reference = reference_->config();
    if (config.vocabulary != reference.vocabulary) {
      return absl::InvalidArgumentError(fmt::format(
          "the reference's vocabulary is {}, the model's is {}: compare models that share a tokenizer",
          reference.vocabulary, config.vocabulary));
    }
    if (const int64_t context = std::min(config.context, reference.context); longest_ > context) {
      return absl::InvalidArgumentError(
          fmt::format("windows of {} tokens are more than the context of {}: use --window {}", longest_,
                      context, context));
    }
    for (const std::vector<TokenId>& window : windows_) {
      for (const TokenId token : window) {
        if (token.value() < config.vocabulary) continue;
        return absl::InvalidArgumentError(fmt::format(
            "the tokenizer gives the token {}, and the model's vocabulary is {}: use the tokenizer that "
            "the model was made with",
            token.value(), config.vocabulary));
      }
    }
    return absl::OkStatus();
  }

  void Time(engine::Engine& engine, MeasuredPrecision& row) const {
    bench::EngineRuns runs(engine, blocks_, clock_);
    const int64_t prompt = std::min(kPrompt, engine.config().context - 1),
                  depth = std::min(kDepth, engine.config().context - 1);
    std::vector<double> prompts, singles, batches;
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      prompts.push_back(static_cast<double>(prompt) / runs.Prompt(prompt, kPrompt));
      singles.push_back(1 / runs.Step(1, depth, kSteps));
      batches.push_back(static_cast<double>(kBatch) / runs.Step(kBatch, depth, kSteps));
    }
    row.prompt_rate = bench::MedianOf(std::move(prompts));
    row.single_rate = bench::MedianOf(std::move(singles));
    row.batch_rate = bench::MedianOf(std::move(batches));
  }

  void Say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  const std::vector<std::vector<TokenId>>& windows_;
  const PrecisionEvalOptions& options_;
  const int threads_;
  const MonotonicClock clock_;
  int64_t longest_ = 0;                        // tokens of a window
  int64_t blocks_ = 0;                         // for a window, and for what is timed
  std::unique_ptr<engine::Engine> reference_;  // never null after Make
  std::vector<std::pair<std::string, Precision>> digests_;
  std::vector<MeasuredPrecision> measured_;
  std::optional<size_t> recommended_;
};

}  // namespace

std::string KvName(const Precision& precision) {
  const std::string keys(tensor::Name(precision.keys));
  return precision.keys == precision.values ? keys
                                            : fmt::format("{}/{}", keys, tensor::Name(precision.values));
}

absl::StatusOr<PrecisionEval> EvaluatePrecisions(const std::vector<std::vector<TokenId>>& windows,
                                                 const PrecisionEvalOptions& options) {
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluation> evaluation, Evaluation::Make(windows, options));
  for (const WeightPrecision weights : kWeights) BATON_RETURN_IF_ERROR(evaluation->Add({.weights = weights}));
  for (const auto& [keys, values] : kKv) {
    BATON_RETURN_IF_ERROR(evaluation->Add({.keys = keys, .values = values}));
  }
  BATON_RETURN_IF_ERROR(evaluation->Recommend());
  return std::move(*evaluation).Take();
}

}  // namespace baton::lab
