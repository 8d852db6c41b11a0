// Weights: a checkpoint's tensors in the form that a backend's kernels want, Q, K and V fused into one
// matrix, gate and up into another. Packing accounts for every tensor: one that is missing, has another shape
// or that the architecture does not know is refused by name. Tied embeddings may be stored under either name,
// as safetensors' save_model does. Owned by a decoder; immutable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kernels/kernels.h"
#include "engine/model/checkpoint.h"
#include "engine/model/expert_store.h"
#include "engine/model/quantizer.h"
#include "engine/model/shard.h"
#include "text/config/config.h"
#include "text/config/quantization.h"

namespace baton::model {

// Biases and norms are float32; those that the architecture lacks are empty. Under tensor parallelism, heads,
// kv_heads, intermediate and vocabulary are this rank's; biases that follow a sum over ranks are with each.
struct AttentionWeights {
  kernels::Values norm;                        // [hidden], of the block's input (post_norms: output)
  std::unique_ptr<kernels::PackedMatrix> qkv;  // [(heads + 2 kv_heads) head_dim, hidden]
  kernels::Values qkv_bias;                    // [(heads + 2 kv_heads) head_dim]
  // [head_dim], or of all heads (wide_qk_norm). late_qk_norm: q_norm has the product of both, k_norm ones.
  kernels::Values q_norm, k_norm;
  std::unique_ptr<kernels::PackedMatrix> output;  // [hidden, heads head_dim]
  kernels::Values output_bias;                    // [hidden]
  kernels::Values sinks;                          // [heads]
};

struct FeedForwardWeights {
  kernels::Values norm;                            // [hidden], of the block's input (post_norms: output)
  std::unique_ptr<kernels::PackedMatrix> gate_up;  // [2 intermediate, hidden], or up alone
  kernels::Values gate_up_bias;                    // [2 intermediate]
  std::unique_ptr<kernels::PackedMatrix> down;     // [hidden, intermediate]
  kernels::Values down_bias;                       // [hidden]
};

struct ExpertMatrices {
  std::unique_ptr<kernels::PackedMatrix> gate_up;  // [2 width, hidden]
  std::unique_ptr<kernels::PackedMatrix> down;     // [hidden, width]
  kernels::Values gate_up_bias;                    // [2 width]
  kernels::Values down_bias;                       // [hidden]
};

// In the place of a dense feed-forward block. Every rank has the whole router, and a part of each expert's
// width.
struct ExpertWeights {
  kernels::Values norm;                           // [hidden], of the block's input
  std::unique_ptr<kernels::PackedMatrix> router;  // [experts (+ 1: the shared one's gate), hidden], as stored
  kernels::Values router_bias;                    // [experts], of the product
  kernels::Values choice_bias;                    // [experts]
  std::vector<ExpertMatrices> experts;            // by id; the shared one, if there is any, behind them
};

struct LayerWeights {
  AttentionWeights attention;
  std::variant<FeedForwardWeights, ExpertWeights> feed_forward;

  // The norm of the second block.
  const kernels::Values& second_norm() const {
    return std::visit([](const auto& block) -> const kernels::Values& { return block.norm; }, feed_forward);
  }
};

// True if its sums over the ranks of a group lose nothing.
bool ExactSums(const FeedForwardWeights& block);
bool ExactSums(const ExpertWeights& block);

struct Weights {
  std::unique_ptr<kernels::PackedMatrix> embedding;  // [vocabulary, hidden]
  std::unique_ptr<kernels::PackedMatrix> own_head;   // [vocabulary, hidden]; null if tied
  std::vector<LayerWeights> layers;
  kernels::Values final_norm;  // [hidden], divided by logits_divisor
  int64_t bytes = 0;           // of all of these, packed, but experts outside memory
  bool converted = false;      // a matrix is not as it is stored

  // True if sums over the ranks of a group lose nothing: one rank or many, the bits are the same.
  bool exact_sums() const;

  const kernels::PackedMatrix& head() const { return own_head ? *own_head : *embedding; }
};

// Treatment of the routed experts in a load.
struct RoutedExperts {
  // Their bytes are elsewhere: only the form of their matrices is found out, of a row of each, and they have
  // no place (kernels::PackedMatrix::Unplaced).
  bool outside = false;
  // Or: called for each once its matrices are packed. It may take them out of memory. Empty: they stay.
  std::function<absl::Status(ExpertId id, ExpertMatrices& expert)> packed = {};
};

// This rank's part of every tensor; CheckDivides has passed. Names as in Hugging Face
// ("model.layers.0.self_attn.q_proj.weight"). `folder` opens messages.
absl::StatusOr<Weights> PackWeights(const std::string& folder, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const QuantizationConfig& stored,
                                    const Shard& shard, kernels::Kernels& kernels, Quantizer& quantizer,
                                    const RoutedExperts& experts = {});

// A layer of a dense model as it is stored, whole.
struct StoredLayer {
  LayerWeights weights;
  // The tensors that its matrices are stacked of.
  std::vector<std::string> qkv, output, gate_up, down;
};
// A dense model as it is stored, or as a quantizer rounds it, a part at a time. Names are those that
// PackWeights takes, and errors its errors. All that it is given outlives it. Of one load, on its thread.
class StoredLayers {
 public:
  StoredLayers(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
               const QuantizationConfig& stored, kernels::Kernels& kernels, Quantizer* quantizer = nullptr);
  ~StoredLayers();

  // The rows of these ids, one after the other.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Embeddings(std::span<const int64_t> ids);
  absl::StatusOr<StoredLayer> Layer(int layer);
  absl::StatusOr<kernels::Values> FinalNorm();
  // The tensor that is the head.
  const std::string& head() const;

 private:
  struct Reading;
  std::unique_ptr<Reading> reading_;
};

// A digest of the weights, 32 bytes: of the checkpoint's bytes, and of how they were read and converted.
// `converted`: Weights::converted. Reads everything once.
std::string WeightsDigest(const Checkpoint& checkpoint, const QuantizationConfig& stored, bool converted,
                          const Quantizer& quantizer);

// The field of the config for which only backends in host memory have an operation; empty: there is none.
std::string HostOnly(const ModelConfig& config);

// Refuses what PackWeights would refuse of the whole model, by the same checks in the same order; packs
// nothing.
absl::Status CheckWeights(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
                          const QuantizationConfig& stored);

// The matrices of the model, [rows, columns] each: what a quantizer converts. block: of columns that are
// transformed together.
struct MatrixShape {
  std::string name;
  int64_t rows = 0, cols = 0, block = 1;
};
std::vector<MatrixShape> MatricesOf(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace baton::model
