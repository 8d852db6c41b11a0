// TensorLoader: takes tensors out of a checkpoint by name, hands a rank's part of them to a backend, and
// knows at the end which were left. Without kernels it checks names and shapes alone; with a quantizer it
// converts matrices first. Of one load, on its thread; what it is given outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kernels/kernels.h"
#include "engine/model/checkpoint.h"
#include "engine/model/quantizer.h"
#include "engine/model/shard.h"
#include "engine/model/stored_matrix.h"
#include "text/config/config.h"

namespace baton::model {

// A tensor of `rows` rows (or values), of which this rank holds `own`.
struct TensorPart {
  std::string name;
  int64_t rows = 0;
  Range own;
  // Not 0: heads of so many rows, whose first and second halves take turns in the file, as in ERNIE. They
  // become what rope takes: the first half, then the second.
  int64_t paired = 0;
};

// All errors are INVALID_ARGUMENT and name the folder and the tensor: one that is missing, or of another
// shape; or what the backend says of it.
class TensorLoader {
 public:
  // `folder` opens messages. Null kernels: nothing is packed, results are empty. Null quantizer: matrices
  // stay as they are stored. `stored`: how those are to be read that are quantized in the checkpoint.
  // fused_experts: of a layer, if they are fused (fused_experts.h).
  TensorLoader(const std::string& folder, const Checkpoint& checkpoint, kernels::Kernels* kernels,
               Quantizer* quantizer = nullptr, const QuantizationConfig& stored = {}, int fused_experts = 0)
      : folder_(folder),
        checkpoint_(checkpoint),
        kernels_(kernels),
        quantizer_(quantizer),
        own_folder_(stored.method == QuantizationConfig::Method::kBaton),
        quantized_(checkpoint, stored, fused_experts),
        fused_(checkpoint, stored, fused_experts) {}

  // Tensors of [rows, cols] each, stacked along rows, of which this rank holds the columns `own_cols`. block:
  // as Quantizer::Convert has them.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Matrix(std::span<const TensorPart> parts,
                                                                int64_t cols, Range own_cols,
                                                                int64_t block = 0);
  // True if the quantizer has changed a matrix.
  bool converted() const { return converted_; }
  // Vectors of `rows` values each, one after the other or multiplied by each other, divided, as float32.
  absl::StatusOr<kernels::Values> Vector(std::span<const TensorPart> parts, double divisor = 1,
                                         bool product = false);
  absl::StatusOr<kernels::Values> Ones(int64_t count) const;

  // A tied model may still carry the tensors of its head, which begin with `head`. They have to be those of
  // the embedding then, or one of the two would be ignored.
  absl::Status TiedHead(const std::string& head, const std::string& embedding);
  // Every tensor must have been of use. Old checkpoints carry rope frequencies, which follow from the config.
  // So do those of layers that are of no use here (ModelConfig::extra_layers).
  absl::Status NothingLeft(const ModelConfig& config) const;

 private:
  // The parts of a matrix, and what their bytes lie in that are not the checkpoint's.
  struct ReadParts {
    std::vector<kernels::WeightView> views;
    std::vector<std::vector<std::byte>> copies;  // of what lies unaligned in its file or is cut out of rows
    std::deque<ConvertedMatrix> conversions;
  };

  absl::Status ReadAll(std::span<const TensorPart> parts, int64_t cols, Range own_cols, int64_t block,
                       ReadParts* read);
  // A quantized matrix of the checkpoint: this rank's part, in the precision of the quantizer.
  absl::StatusOr<ConvertedMatrix> Quantized(const TensorPart& part, int64_t cols, Range own_cols,
                                            int64_t block);
  absl::Status Refused(const std::string& name, const absl::Status& status) const;
  // A tensor of numbers, not of integers that stand for them.
  absl::StatusOr<const StoredTensor*> Take(const std::string& name, std::span<const int64_t> shape);

  const std::string& folder_;
  const Checkpoint& checkpoint_;
  kernels::Kernels* const kernels_;  // null: shapes are checked, nothing is packed
  Quantizer* const quantizer_;       // null: nothing is converted
  const bool own_folder_;            // of `baton model quantize`: integers are of transformed columns
  const MatrixReader quantized_;
  const FusedExperts fused_;  // of which these are the biases
  bool converted_ = false;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace baton::model
