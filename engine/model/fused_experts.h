// FusedExperts: the experts of a layer as gpt-oss stores them: one tensor for all of them, gate and up
// interleaved. A matrix or a bias of one expert goes by the name that other families give it
// ("model.layers.0.mlp.experts.3.up_proj.weight"); this finds the numbers that it stands for:
//
//   gate_up_proj         [experts, hidden, 2 width]  output features are columns: even ones gate, odd ones up
//   down_proj            [experts, width, hidden]
//   gate_up_proj_bias    [experts, 2 width]
//   down_proj_bias       [experts, hidden]
//
// or, in MXFP4 (OCP Microscaling Formats 1.0), [experts, output features, input features / 32, 16] bytes of
// two E2M1 values, the lower half first, and an E8M0 scale for each 32:
//
//   gate_up_proj_blocks, gate_up_proj_scales, down_proj_blocks, down_proj_scales
//
// MXFP4 becomes bfloat16, which holds each of its numbers. Of one load; the checkpoint outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/quantizer.h"
#include "engine/model/shard.h"
#include "text/config/quantization.h"

namespace baton::model {

class FusedExperts {
 public:
  // experts: of a layer; 0: the model has none that are fused.
  FusedExperts(const Checkpoint& checkpoint, const QuantizationConfig& stored, int experts)
      : checkpoint_(checkpoint),
        mxfp4_(stored.method == QuantizationConfig::Method::kMxfp4),
        experts_(experts) {}

  // The tensors that the matrix or the bias `name` is part of: none if it is not of a fused expert.
  std::vector<std::string> TensorsOf(const std::string& name) const;
  // Rows `own` of the matrix `name` [rows, cols]. INVALID_ARGUMENT names the tensor that is missing or does
  // not fit. own.count 0: checks alone.
  absl::StatusOr<ConvertedMatrix> Read(const std::string& name, int64_t rows, int64_t cols, Range own) const;
  // The values `own` of the bias `name` [size], likewise.
  absl::StatusOr<std::vector<float>> ReadBias(const std::string& name, int64_t size, Range own) const;

 private:
  absl::StatusOr<const StoredTensor*> Need(const std::string& name, const std::vector<int64_t>& shape,
                                           bool bytes) const;

  const Checkpoint& checkpoint_;
  const bool mxfp4_;
  const int experts_;
};

}  // namespace baton::model
