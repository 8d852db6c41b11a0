#include "common/model/summary.h"

#include "common/base/status.h"
#include "common/model/checkpoint.h"
#include "common/model/rope.h"
#include "common/model/weights.h"

namespace baton::model {

int64_t ModelSummary::WeightBytes(WeightPrecision precision) const {
  int64_t values = 0;
  for (const auto& [dtype, count] : values_by_dtype) values += count;
  const int64_t rest = (values - matrix_values) * int64_t{sizeof(float)};
  switch (precision) {
    case WeightPrecision::kStored:
      return rest + matrix_bytes;
    case WeightPrecision::kBF16:
      return rest + 2 * matrix_values;
    case WeightPrecision::kInt8:
      return rest + matrix_values + matrix_rows * int64_t{sizeof(float)};
  }
  return 0;
}

int64_t ModelSummary::KvBytesPerToken(tensor::DType keys, tensor::DType values) const {
  return (config.KvBytesPerToken(tensor::SizeOf(keys)) + config.KvBytesPerToken(tensor::SizeOf(values))) / 2;
}

int64_t ModelSummary::KvBytesOfContext(tensor::DType keys, tensor::DType values) const {
  return BlocksFor(config.context) * kBlockTokens * KvBytesPerToken(keys, values);
}

absl::StatusOr<ModelSummary> ModelSummary::Load(const std::string& folder) {
  ModelSummary summary;
  BATON_ASSIGN_OR_RETURN(summary.config, ModelConfig::Load(folder));
  BATON_ASSIGN_OR_RETURN(summary.defaults, GenerationDefaults::Load(folder, summary.config));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  summary.parameters = summary.config.parameters();
  summary.tensors = static_cast<int64_t>(checkpoint.tensors().size());
  summary.weight_bytes = checkpoint.bytes();
  summary.rope_bytes = summary.config.context * (summary.config.head_dim / 2) * int64_t{2 * sizeof(float)};
  summary.loads = CheckWeights(folder, checkpoint, summary.config);
  summary.loads.Update(RopeAngles::CheckSize(summary.config));
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const int64_t values = static_cast<int64_t>(tensor->bytes.size()) / tensor::SizeOf(tensor->dtype);
    summary.values_by_dtype[tensor->dtype] += values;
    if (tensor->shape.size() != 2) continue;
    summary.matrix_values += values;
    summary.matrix_rows += tensor->shape.front();
    summary.matrix_bytes += values * (tensor->dtype == tensor::DType::kBF16 ? 2 : 4);
  }
  return summary;
}

}  // namespace baton::model
