#include "engine/model/measure_columns.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "engine/model/checkpoint.h"
#include "engine/model/layer_pass.h"
#include "engine/model/rope.h"
#include "engine/model/stored_quantization.h"
#include "engine/model/weights.h"
#include "text/config/config.h"

namespace baton::model {
namespace {

using kernels::Matrix;

constexpr int64_t kMeasuredRows = 128;

// The exponents of the columns of `x`, for the tensors that it goes into.
void Note(Matrix x, const std::vector<std::string>& tensors, ColumnExponents& to) {
  std::vector<float> squares(static_cast<size_t>(x.cols));
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* const row = x.row(r);
    for (size_t k = 0; k < squares.size(); ++k) squares[k] += row[k] * row[k];
  }
  std::vector<int8_t> exponents;
  for (const float sum : squares) exponents.push_back(ExponentOf(sum / static_cast<float>(x.rows)));
  to.Set(tensors, std::move(exponents));
}

// Knuth's multiplicative hash.
std::vector<int64_t> DrawnIds(const ModelConfig& config) {
  std::vector<int64_t> ids;
  for (int64_t i = 1; i <= std::min(kMeasuredRows, config.context); ++i) {
    const auto drawn = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u);
    ids.push_back(static_cast<int64_t>(uint64_t{drawn} * static_cast<uint64_t>(config.vocabulary) >> 32));
  }
  return ids;
}

// Matrices that are integers in the folder are kept, most of them.
bool HoldsIntegers(const QuantizationConfig& stored) {
  using Method = QuantizationConfig::Method;
  return stored.method == Method::kCompressedTensors || stored.method == Method::kGptq ||
         stored.method == Method::kAwq || stored.method == Method::kBaton;
}

}  // namespace

absl::StatusOr<ColumnExponents> MeasureColumns(const std::string& folder, kernels::Kernels& kernels) {
  ColumnExponents measured;
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(folder));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, LoadQuantization(folder, checkpoint));
  if (config.experts.experts > 0 || HoldsIntegers(stored)) return measured;
  BATON_ASSIGN_OR_RETURN(const RopeAngles rope, RopeAngles::Create(config));
  const std::vector<bool> others = OtherLayers(config);
  std::optional<RopeAngles> other;
  if (!others.empty()) {
    BATON_ASSIGN_OR_RETURN(other, RopeAngles::Other(config));
  }
  const std::vector<int64_t> ids = DrawnIds(config);
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<LayerPass> pass,
                         LayerPass::Create(config, kernels, {std::ssize(ids)}));
  const auto note = [&measured](Matrix x, const std::vector<std::string>& tensors) {
    Note(x, tensors, measured);
  };
  StoredLayers layers(folder, checkpoint, config, stored, kernels);
  {
    BATON_ASSIGN_OR_RETURN(const auto embeddings, layers.Embeddings(ids));
    pass->Begin(*embeddings);
  }
  for (int l = 0; l < config.layers; ++l) {
    BATON_ASSIGN_OR_RETURN(const StoredLayer layer, layers.Layer(l));
    pass->Layer(l, layer, !others.empty() && others[static_cast<size_t>(l)] ? other->table() : rope.table(),
                note);
  }
  BATON_ASSIGN_OR_RETURN(const kernels::Values norm, layers.FinalNorm());
  pass->End(norm, layers.head(), note);
  return measured;
}

}  // namespace baton::model
