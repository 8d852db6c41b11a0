// MatrixReader: quantized matrices of a checkpoint, as QuantizationConfig says that they are to be read, and
// those of fused experts. What
// the kernels multiply as it is stays integers: int8 with a scale per row, and 4 bits on the lattice of int8
// (lattice.h). All else becomes float32, by the definition of its format: weights that are only stored in
// fewer bits, as those of GGUF files. Static scales of activations are not used. Of one load; the checkpoint
// outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/fused_experts.h"
#include "engine/model/quantizer.h"
#include "engine/model/shard.h"
#include "text/config/quantization.h"

namespace baton::model {

class MatrixReader {
 public:
  // fused_experts: of a layer, if they are fused (fused_experts.h).
  MatrixReader(const Checkpoint& checkpoint, const QuantizationConfig& config, int fused_experts = 0)
      : checkpoint_(checkpoint), config_(config), fused_(checkpoint, config, fused_experts) {}

  // The tensors that stand for the matrix `name` ("model.layers.0.mlp.up_proj.weight"): none if it is not
  // quantized, and its rows are in order and its own tensor.
  std::vector<std::string> TensorsOf(const std::string& name) const;
  // Rows `own` of a quantized matrix [rows, cols]. INVALID_ARGUMENT names the tensor that is missing or whose
  // shape or type does not fit. own.count 0: checks alone. block: columns that are transformed together in
  // folders that hold transformed columns.
  absl::StatusOr<ConvertedMatrix> Read(const std::string& name, int64_t rows, int64_t cols, Range own,
                                       int64_t block = 1) const;

 private:
  const Checkpoint& checkpoint_;
  const QuantizationConfig config_;
  const FusedExperts fused_;
};

// The columns `own` of a matrix: the same numbers. 4 bits become int8 if `own` does not begin with a group.
// `own` cuts no block of a transform.
ConvertedMatrix Columns(ConvertedMatrix matrix, Range own);

// The --weights precision that has this form: kInt8, kInt4, or kStored for all else.
WeightPrecision PrecisionOf(const kernels::WeightView& view);

}  // namespace baton::model
