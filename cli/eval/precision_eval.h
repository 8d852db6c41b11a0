// PrecisionEval: what precisions of weights and of KV cost a model in quality, measured over a text, and what
// they bring: memory, and the speed of this machine. Every precision of weights is measured with KV in
// float32, and every precision of KV with weights as stored; then the combinations that should do, from the
// smallest on, until one does. One thread, which loads two engines at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/eval/divergence.h"
#include "common/engine/engine.h"
#include "common/model/quantizer.h"
#include "common/tensor/dtype.h"

namespace baton::cli {

struct Precision {
  model::WeightPrecision weights = model::WeightPrecision::kStored;
  tensor::DType keys = tensor::DType::kF32, values = tensor::DType::kF32;

  friend bool operator==(const Precision&, const Precision&) = default;
};
// "f32", "i8/i4".
std::string KvName(const Precision& precision);

struct MeasuredPrecision {
  Precision precision;
  // The reason for which there are no figures, and then nothing below is set: the backend does not have the
  // precision, or another row is the same. Empty: measured.
  std::string none;
  Distance distance;
  int64_t weight_bytes = 0, kv_token_bytes = 0;  // in memory; of KV for each token
  // Tokens per second, medians: of a prompt of 512 tokens, and of steps of 1 and of 8 sequences that have
  // 1,024 tokens each; less where the context is shorter.
  double prompt_rate = 0, single_rate = 0, batch_rate = 0;

  // Memory of the weights and of those 8 sequences.
  int64_t bytes() const { return weight_bytes + int64_t{8} * 1024 * kv_token_bytes; }
};

struct PrecisionEvalOptions {
  engine::EngineOptions engine;  // the model, the backend and the threads
  // The folder that is compared with, as stored and with KV in float32. Empty: the model's own.
  std::string reference;
  double max_kl = 0.01;  // of what is recommended, in the mean
  int repetitions = 3;   // of speeds
  std::function<void(const std::string& what)> progress = {};
};

struct PrecisionEval {
  std::string reference;
  std::vector<MeasuredPrecision> measured;
  // The combination of least memory that was measured within the limit, in `measured`. Unset: none is.
  std::optional<size_t> recommended;
};

// A file's text as windows of `window` tokens, at most `most` tokens in all; each begins with the tokens that
// the model's tokenizer puts before a text. INVALID_ARGUMENT, naming the file: fewer than 64 tokens.
absl::StatusOr<std::vector<std::vector<TokenId>>> ReadWindows(const std::string& model_folder,
                                                              const std::string& path, int64_t window,
                                                              int64_t most);

// INVALID_ARGUMENT: the reference has another vocabulary or a shorter context; others as Engine::Load.
absl::StatusOr<PrecisionEval> EvaluatePrecisions(const std::vector<std::vector<TokenId>>& windows,
                                                 const PrecisionEvalOptions& options);

}  // namespace baton::cli
