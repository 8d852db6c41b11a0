#include "engine/model/summary.h"

#include "common/base/status.h"
#include "engine/kernels/kernels.h"
#include "engine/model/checkpoint.h"
#include "engine/model/decoder.h"
#include "engine/model/lattice.h"
#include "engine/model/rope.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/stored_quantization.h"
#include "engine/model/weights.h"
#include "protocol/kv_layout.h"

namespace baton::model {
namespace {

// The backend that runs unless told otherwise must have attention for these heads.
absl::Status CheckHeads(const ModelConfig& config) {
  BATON_ASSIGN_OR_RETURN(const auto kernels, kernels::MakeKernels("cpu", /*threads=*/1));
  return kernels->CheckLayout(KvLayoutOf(config, /*ranks=*/1, tensor::DType::kF32, tensor::DType::kF32),
                              config.head_dim);
}

}  // namespace

int64_t ModelSummary::WeightBytes(WeightPrecision precision) const {
  const int64_t rest = (parameters - matrix_values) * int64_t{sizeof(float)};
  switch (precision) {
    case WeightPrecision::kStored:
      return rest + matrix_bytes;
    case WeightPrecision::kF32:
      return rest + matrix_values * int64_t{sizeof(float)};
    case WeightPrecision::kBF16:
      return rest + 2 * matrix_values;
    case WeightPrecision::kInt8:
      return rest + matrix_values + matrix_rows * int64_t{sizeof(float)};
    case WeightPrecision::kInt4:
      return rest + int4_bytes;
  }
  return 0;
}

int64_t ModelSummary::ExpertBytes(WeightPrecision precision) const {
  switch (precision) {
    case WeightPrecision::kStored:
      return expert_bytes;
    case WeightPrecision::kF32:
      return expert_values * int64_t{sizeof(float)};
    case WeightPrecision::kBF16:
      return 2 * expert_values;
    case WeightPrecision::kInt8:
      return expert_values + expert_rows * int64_t{sizeof(float)};
    case WeightPrecision::kInt4:
      return expert_int4_bytes;
  }
  return 0;
}

int64_t ModelSummary::Experts() const {
  int64_t experts = 0;
  for (int l = 0; l < config.layers; ++l) experts += config.has_experts(l) ? config.experts.experts : 0;
  return experts;
}

int64_t ModelSummary::BytesPerExpert(WeightPrecision precision) const {
  const int64_t experts = Experts();
  return experts == 0 ? 0 : ExpertBytes(precision) / experts;
}

int64_t ModelSummary::ExpertsIn(int64_t memory, WeightPrecision precision) const {
  return std::min(Experts(), memory / std::max<int64_t>(1, BytesPerExpert(precision)));
}

int64_t ModelSummary::WeightBytesWith(int64_t expert_memory, WeightPrecision precision) const {
  return WeightBytes(precision) - ExpertBytes(precision) +
         ExpertsIn(expert_memory, precision) * BytesPerExpert(precision);
}

int64_t ModelSummary::BytesPerToken(WeightPrecision precision) const {
  const int64_t read = WeightBytes(precision) - Idle(ExpertBytes(precision));
  if (lookup_values == 0) return read;
  switch (precision) {
    case WeightPrecision::kStored:
      return read - lookup_bytes;
    case WeightPrecision::kF32:
      return read - lookup_values * int64_t{sizeof(float)};
    case WeightPrecision::kBF16:
      return read - 2 * lookup_values;
    case WeightPrecision::kInt8:
    case WeightPrecision::kInt4:
      return read - lookup_values - config.vocabulary * int64_t{sizeof(float)};
  }
  return 0;
}

int64_t ModelSummary::KvBytesPerToken(tensor::DType keys, tensor::DType values) const {
  const kv::KvLayout layout = KvLayoutOf(config, /*ranks=*/1, keys, values);
  return (layout.block_bytes() + kBlockTokens - 1) / kBlockTokens;
}

int64_t ModelSummary::KvBytesOfContext(tensor::DType keys, tensor::DType values) const {
  return BlocksFor(config.context) * kBlockTokens * KvBytesPerToken(keys, values);
}

absl::StatusOr<ModelSummary> ModelSummary::Load(const std::string& folder) {
  ModelSummary summary;
  BATON_ASSIGN_OR_RETURN(summary.config, ModelConfig::Load(folder));
  BATON_ASSIGN_OR_RETURN(summary.defaults, GenerationDefaults::Load(folder, summary.config.vocabulary));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  summary.parameters = summary.config.parameters();
  summary.active_parameters = summary.config.active_parameters();
  summary.tensors = static_cast<int64_t>(checkpoint.tensors().size());
  summary.weight_bytes = checkpoint.bytes();
  summary.rope_bytes = RopeAngles::BytesFor(summary.config);
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, LoadQuantization(folder, checkpoint));
  summary.quantization = stored.Describe();
  summary.contradiction = stored.Contradiction();
  summary.loads = CheckHeads(summary.config);
  summary.loads.Update(CheckWeights(folder, checkpoint, summary.config, stored));
  summary.loads.Update(RopeAngles::CheckSize(summary.config));
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    summary.values_by_type[tensor->TypeName()] += tensor->values();
  }
  const MatrixReader reader(checkpoint, stored,
                            summary.config.experts.fused ? summary.config.experts.experts : 0);
  for (const auto& [name, rows, cols, block] : MatricesOf(checkpoint, summary.config)) {
    const int64_t values = rows * cols, int8 = values + rows * int64_t{sizeof(float)};
    // A group of 4 bits has a byte for its factor and zero.
    const int64_t int4 = rows * int64_t{sizeof(float)} + rows * LatticeGroups(cols) * (kLatticeGroup / 2 + 1);
    if (IsRouter(name)) continue;
    const StoredTensor* const plain = checkpoint.Find(name);
    const int64_t in_int4 =
        PrecisionFor(WeightPrecision::kInt4, name) == WeightPrecision::kInt8 ? int8 : int4;
    summary.matrix_values += values;
    summary.matrix_rows += rows;
    summary.int4_bytes += in_int4;
    WeightPrecision kept = WeightPrecision::kStored;
    if (!reader.TensorsOf(name).empty()) {
      // A row shows it.
      const absl::StatusOr<ConvertedMatrix> row = reader.Read(name, rows, cols, {0, 1}, block);
      if (row.ok()) {
        const bool bf16 = !row->view.quantized() && row->view.dtype == tensor::DType::kBF16;
        kept = bf16 ? WeightPrecision::kBF16 : PrecisionOf(row->view);
      }
    } else if (plain != nullptr && plain->type == StoredType::kBF16) {
      kept = WeightPrecision::kBF16;
    }
    const int64_t bytes = kept == WeightPrecision::kInt8   ? int8
                          : kept == WeightPrecision::kInt4 ? int4
                          : kept == WeightPrecision::kBF16 ? 2 * values
                                                           : 4 * values;
    summary.matrix_bytes += bytes;
    if (name.find(".experts.") != std::string::npos) {
      summary.expert_values += values;
      summary.expert_rows += rows;
      summary.expert_bytes += bytes;
      summary.expert_int4_bytes += in_int4;
    }
    ++summary.stored[kept == WeightPrecision::kStored ? "f32" : std::string(Name(kept))];
    if (!summary.config.tied_embeddings && name.ends_with("embed_tokens.weight")) {
      summary.lookup_values = values;
      summary.lookup_bytes = bytes;
    }
  }
  return summary;
}

}  // namespace baton::model
