// Decoder: a loaded model, or one rank's part of it, and its forward pass over paged KV. It owns weights and
// scratch memory, not the KV. Load may be called on any thread; Forward on the rank's engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/kernels/collective.h"
#include "common/kernels/kernels.h"
#include "common/kv/store/kv_store.h"
#include "common/model/config/config.h"

namespace baton::model {

// Rows of several sequences, stacked. The caller has checked ids, positions and blocks.
struct ForwardBatch {
  std::span<const TokenId> tokens;                   // [rows]
  std::span<const kernels::SequenceRows> sequences;  // cover all rows, in order
  std::span<const int64_t> logit_rows;               // rows whose logits are wanted, ascending
  // Of those, rows whose token is wanted rather than the logits, where it can be had. RowDraw::row counts
  // among the logit rows, ascending.
  std::span<const kernels::RowDraw> draws = {};
  // Rows that go on from a token which the step under way draws.
  std::span<const kernels::TakenToken> taken = {};
  // What the draws refer to (kernels::StepDraws).
  std::span<const kernels::TokenBias> biases = {};
  std::span<const kernels::SeenTokens> seen = {};
};

class Decoder {
 public:
  // Reads and packs a Hugging Face folder. Errors name the file, the tensor and what to do. `kernels`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<Decoder>> Load(const std::string& folder, kernels::Kernels& kernels) {
    return LoadShard(folder, kernels, nullptr);
  }
  // The part of `group`'s rank (all of it without a group), which reads no more than that part. The group
  // outlives it.
  static absl::StatusOr<std::unique_ptr<Decoder>> LoadShard(const std::string& folder,
                                                            kernels::Kernels& kernels,
                                                            kernels::Collective* group);
  ~Decoder();

  // Of the whole model.
  const ModelConfig& config() const;
  // SHA-256 (32 bytes) over names, shapes, dtypes and bytes of all tensors, sharding aside. Empty but on rank
  // 0, which alone reads them all.
  const std::string& weights_digest() const;
  // Bytes of packed weights, of this rank.
  int64_t weight_bytes() const;
  // The layout that this rank's KV takes at the given precisions.
  kv::KvLayout LayoutFor(tensor::DType keys, tensor::DType values) const;

  // Computes the batch, writes its KV into `store`, and writes logits [logit_rows, vocabulary] to `logits`: a
  // rank of a group only the columns of its part of the vocabulary, and all ranks must compute the same batch
  // at the same time. layer_done(l) is called when layer l's KV of all rows is in the store, on every rank:
  // what may leave, leaves then.
  // tokens [draws]: the token of each draw, whose row of `logits` is nobody's then; or -1, and the logits are
  // there: the backend does not draw, no rank has the whole row, or no logit is a number.
  void Forward(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
               absl::FunctionRef<void(int layer)> layer_done, std::span<TokenId> tokens = {});

  // Forward in two halves: Launch returns when the step is on its way (on a CPU, computed), Finish waits for
  // it, or, where it has no logit rows, has uploads wait for it: either way the blocks that it read and wrote
  // may then be given to others. A second step may be launched before the first has finished, if that draws a
  // token for each of its logit rows; it leaves no logits then, not even of a row of which none was a number.
  void Launch(const ForwardBatch& batch, kv::KvStore& store, std::span<float> logits,
              absl::FunctionRef<void(int layer)> layer_done);
  void Finish(std::span<float> logits, std::span<TokenId> tokens);
  // Whether the backend has a sampler for this model's vocabulary.
  bool samples() const;
  // Memory for the penalty slots [0, slots) (kernels::DeviceSampler). False if there is none, or no sampler.
  bool ReservePenaltySlots(int32_t slots);

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::model
