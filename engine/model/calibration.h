// Calibration: the ErrorFeedback of a dense model's matrices of 4 bits, from what goes into them while the
// model reads some texts. A layer at a time, in order: the texts reach a layer through those before it as
// they were rounded, so that a layer makes up for what these have lost, too (GPTQ, arXiv 2210.17323). One
// thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/error_feedback.h"
#include "engine/model/layer_pass.h"
#include "engine/model/quantizer.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"

namespace baton::model {

class Calibration {
 public:
  // All but the texts outlive it; the quantizer takes its feedback from it from now on. Errors are those of
  // MeasureColumns. INVALID_ARGUMENT: a precision but kInt4, a mixture of experts, a text without tokens or
  // longer than the context, or a token that the model does not have.
  static absl::StatusOr<std::unique_ptr<Calibration>> Create(const std::string& folder,
                                                             const Checkpoint& checkpoint,
                                                             const ModelConfig& config,
                                                             kernels::Kernels& kernels,
                                                             device::ThreadPool& pool, Quantizer& quantizer,
                                                             const std::vector<std::vector<TokenId>>& texts);
  ~Calibration();

  // Layers follow each other from 0 on. From then until the next call the quantizer has the layer's feedback.
  absl::Status Enter(int layer);

 private:
  Calibration(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
              kernels::Kernels& kernels, device::ThreadPool& pool, Quantizer& quantizer);
  kernels::RopeTable RopeOf(int layer) const;

  const ModelConfig& config_;
  kernels::Kernels& kernels_;
  device::ThreadPool& pool_;
  Quantizer& quantizer_;
  std::map<std::string, MatrixShape, std::less<>> shapes_;
  StoredLayers stored_, rounded_;
  std::optional<RopeAngles> rope_, other_rope_;  // rope_: set by Create
  std::vector<bool> other_layers_;
  std::unique_ptr<LayerPass> pass_;  // never null after Create
  int layer_ = -1;
  std::map<std::string, std::shared_ptr<const ErrorFeedback>, std::less<>> feedback_;
};

}  // namespace baton::model
