// ModelSummary: what a person wants to know of a model folder before serving it, and whether a worker would
// load it; nothing is packed. Plain data, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"
#include "engine/model/quantizer.h"
#include "text/config/config.h"

namespace baton::model {

struct ModelSummary {
  ModelConfig config;
  GenerationDefaults defaults;
  int64_t parameters = 0;                         // by the config; tied embeddings count once
  int64_t active_parameters = 0;                  // of them, what one token uses
  int64_t tensors = 0;                            // in the files
  int64_t weight_bytes = 0;                       // in the files; what a backend packs may differ
  int64_t rope_bytes = 0;                         // of the angle tables that a decoder holds
  std::map<std::string, int64_t> values_by_type;  // numbers stored in each precision: "bf16"
  // All matrices together, by the config; without the routers of mixtures, which are float32.
  int64_t matrix_values = 0, matrix_rows = 0;
  int64_t matrix_bytes = 0;  // as the cpu backend keeps what is stored
  int64_t int4_bytes = 0;    // and with --weights int4
  // The embedding's, if the head is another matrix: a token reads a row of it.
  int64_t lookup_values = 0, lookup_bytes = 0;
  // The part of the routed experts of all layers: a token reads some of them.
  int64_t expert_values = 0, expert_rows = 0, expert_bytes = 0, expert_int4_bytes = 0;
  std::string quantization;               // "gptq, 4 bits, groups of 128"; empty: none
  std::string contradiction;              // QuantizationConfig::Contradiction
  std::map<std::string, int64_t> stored;  // matrices by what they are kept as: "bf16", "int8", "int4", "f32"
  // OK, or what Decoder::Load says of these weights with this config: a missing tensor, one of another shape,
  // one that is not known.
  absl::Status loads;

  // Bytes in the cpu backend with --weights: matrices in that precision, all else in float32. Matrices of F16
  // are kept as float32 if they stay as they are stored; padding up to whole panels is left out.
  int64_t WeightBytes(WeightPrecision precision) const;
  // The three matrices of one expert of one layer. 0 if there are none.
  int64_t BytesPerExpert(WeightPrecision precision) const;
  // Routed experts of all layers together.
  int64_t Experts() const;
  // How many of them `memory` bytes hold at once (--expert-memory), without padding.
  int64_t ExpertsIn(int64_t memory, WeightPrecision precision) const;
  // As WeightBytes, with so many bytes of experts in memory at most.
  int64_t WeightBytesWith(int64_t expert_memory, WeightPrecision precision) const;
  // Values of the matrices that a token does not read: rows of the embedding, and experts that it does not
  // choose.
  int64_t IdleValues() const { return lookup_values + Idle(expert_values); }
  // Weight bytes that a decode step of one token reads.
  int64_t BytesPerToken(WeightPrecision precision) const;
  // A token's part of a block, scales included, as the cpu backend keeps it.
  int64_t KvBytesPerToken(tensor::DType keys, tensor::DType values) const;
  // KV bytes of one sequence that fills the context, in whole blocks.
  int64_t KvBytesOfContext(tensor::DType keys, tensor::DType values) const;

  // Errors as Decoder::Load has them of files that can't be read at all; the rest is in `loads`.
  static absl::StatusOr<ModelSummary> Load(const std::string& folder);

 private:
  // The part of `of_experts` that belongs to experts that a token does not choose.
  int64_t Idle(int64_t of_experts) const {
    const ExpertConfig& experts = config.experts;
    return experts.experts == 0 ? 0 : of_experts / experts.experts * (experts.experts - experts.chosen);
  }
  int64_t ExpertBytes(WeightPrecision precision) const;
};

}  // namespace baton::model
