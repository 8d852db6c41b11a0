// LayerPass: texts on their way through a dense model as it is stored, a layer at a time: for measurements of
// what goes into its matrices (measure_columns.h, calibration.h). It computes what Decoder does. One thread,
// that of the kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/store/kv_store.h"
#include "engine/model/arena.h"
#include "engine/model/rank.h"
#include "engine/model/weights.h"
#include "text/config/config.h"

namespace baton::model {

class LayerPass {
 public:
  // Rows of activations [rows, cols] that go into the matrices of these tensors.
  using See = absl::FunctionRef<void(kernels::Matrix x, const std::vector<std::string>& tensors)>;

  // `rows` of each text: tokens, at most the context. Config and kernels outlive it. Errors are those of
  // Kernels::CheckLayout.
  static absl::StatusOr<std::unique_ptr<LayerPass>> Create(const ModelConfig& config,
                                                           kernels::Kernels& kernels,
                                                           std::vector<int64_t> rows);

  // embeddings: a row for each row of all texts, in their order. First.
  void Begin(const kernels::PackedMatrix& embeddings);
  // Takes all texts through a layer. see: called for each text and each input of matrices.
  void Layer(int index, const StoredLayer& layer, const kernels::RopeTable& rope, See see);
  // The input of the head, for each text. Last.
  void End(const kernels::Values& final_norm, const std::string& head, See see);

  // The texts' rows between two layers [all rows][hidden], to be put back for another pass through a layer.
  const std::vector<float>& stream() const { return stream_; }
  void Restore(std::vector<float> stream) { stream_ = std::move(stream); }

 private:
  LayerPass(const ModelConfig& config, kernels::Kernels& kernels, std::vector<int64_t> rows);
  // The rows of text t in the stream.
  kernels::Matrix Rows(size_t t);
  kernels::Matrix Normed(const kernels::Values& norm, kernels::Matrix x, kernels::Matrix normed);
  void Add(const kernels::Values& norm, kernels::Matrix delta, kernels::Matrix x);

  const ModelConfig& config_;
  const Rank rank_;
  Arena arena_;
  const std::vector<int64_t> rows_;
  const float stream_eps_;
  std::vector<BlockId> blocks_;         // for the longest text
  std::unique_ptr<kv::KvStore> store_;  // never null after Create
  std::vector<float> stream_;           // as the decoder keeps it
};

}  // namespace baton::model
