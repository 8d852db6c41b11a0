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
#include "common/tensor/dtype.h"
#include "engine/engine.h"
#include "engine/model/quantizer.h"
#include "lab/eval/divergence.h"

namespace baton::lab {

struct Precision {
  model::WeightPrecision weights = model::WeightPrecision::kStored;
  tensor::DType keys = tensor::DType::kF32, values = tensor::DType::kF32;

  friend bool operator==(const Precision&, const Precision&) = default;
};
// "f32", "i8/i4".
std::string KvName(const Precision& precision);

struct MeasuredPrecision {
  Precision precision;
  // The reason for which there are no figures, and then nothing below is set: it does not load, its logits
  // are no numbers, or another row is the same. Empty: measured.
  std::string not_measured;
  Distance distance;
  int64_t weight_bytes = 0, kv_token_bytes = 0;  // in memory; KV: for each token
  // Tokens per second, medians: of a prompt of kPrompt tokens, and of steps of 1 and of kBatch sequences that
  // have kDepth tokens each; fewer where the context is shorter.
  double prompt_rate = 0, single_rate = 0, batch_rate = 0;
  static constexpr int64_t kPrompt = 512, kBatch = 8, kDepth = 1024;

  // Memory of the weights and of those sequences.
  int64_t bytes() const { return weight_bytes + kBatch * kDepth * kv_token_bytes; }
};

struct PrecisionEvalOptions {
  engine::EngineOptions engine;  // the model, the backend and the threads
  // The folder that is compared with, as stored and with KV in float32. Empty: the model's own.
  std::string reference;
  double max_kl = 0.01;  // the largest mean divergence of what is recommended
  int repetitions = 3;   // speeds are their medians
  std::function<void(const std::string& what)> progress = {};
};

struct PrecisionEval {
  std::vector<MeasuredPrecision> measured;
  // The combination of least memory that was measured within the limit, in `measured`. Unset: none is.
  std::optional<size_t> recommended;
};

// INVALID_ARGUMENT: the reference has another vocabulary, or a window has tokens beyond it or is longer than
// a context. FAILED_PRECONDITION: the model as stored gives no numbers. Others as Engine::Load.
absl::StatusOr<PrecisionEval> EvaluatePrecisions(const std::vector<std::vector<TokenId>>& windows,
                                                 const PrecisionEvalOptions& options);

}  // namespace baton::lab
