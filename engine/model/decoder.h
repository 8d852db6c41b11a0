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
#include "engine/kernels/collective.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/store/kv_store.h"
#include "engine/model/column_exponents.h"
#include "engine/model/landing.h"
#include "engine/model/quantizer.h"
#include "text/config/config.h"

namespace baton::model {

class ExpertObserver;
class ExpertStore;

// How matrices are kept.
struct WeightOptions {
  WeightPrecision precision = WeightPrecision::kStored;
  // MeasureColumns of the folder, for the columns that int8 and int4 transform.
  ColumnExponents exponents = {};
  // That convert them.
  int threads = 1;
  // Null: `threads` are its own. Otherwise it converts on the cores that the share has.
  device::CoreShare* cores = nullptr;
  // Called after each matrix that is converted, if it is there.
  ConversionProgress progress = {};
  // Compute weights_digest, which reads everything once more.
  bool digest = true;
  // Where routed experts lie instead of memory (expert_file.h), as PackExperts wrote it of this folder and
  // precision; empty: they are in memory. On one rank only. At most so many bytes of them are in memory at
  // once.
  std::string expert_file = {};
  int64_t expert_memory = 0;
};

// The layout of the KV of a model whose heads are split over so many ranks.
kv::KvLayout KvLayoutOf(const ModelConfig& config, int ranks, tensor::DType keys, tensor::DType values);

class Decoder {
 public:
  // Reads and packs a Hugging Face folder. Errors name the file, the tensor and what to do. `kernels`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<Decoder>> Load(const std::string& folder, kernels::Kernels& kernels,
                                                       const WeightOptions& options = {}) {
    return LoadShard(folder, kernels, nullptr, options);
  }
  // The part of `group`'s rank (all of it without a group), which reads no more than that part. The group
  // outlives it.
  static absl::StatusOr<std::unique_ptr<Decoder>> LoadShard(const std::string& folder,
                                                            kernels::Kernels& kernels,
                                                            kernels::Collective* group,
                                                            const WeightOptions& options = {});
  ~Decoder();

  // The whole model's.
  const ModelConfig& config() const;
  // QuantizationConfig::Contradiction of the folder.
  const std::string& contradiction() const;
  // SHA-256 (32 bytes) over names, shapes, dtypes and bytes of all tensors, sharding aside, and over how they
  // were converted. Empty but on rank 0, which alone reads them all, or
  // if it was not asked for.
  const std::string& weights_digest() const;
  // Bytes of packed weights, of this rank.
  int64_t weight_bytes() const;
  // True if bits do not depend on the number of ranks (Weights::exact_sums).
  bool exact_sums() const;
  // The store of experts outside memory; null if all are in memory.
  const ExpertStore* expert_store() const;
  // From now on it is told what mixtures of experts do; null: nobody is. Of a decoder on one rank; the
  // observer outlives its steps.
  void Observe(ExpertObserver* observer);
  // The layout of this rank's KV at the given precisions.
  kv::KvLayout LayoutFor(tensor::DType keys, tensor::DType values) const;

  // Computes the step, writes its KV into `store`, and its logits [logit_rows, vocabulary] to `logits`. The
  // caller has checked ids, positions and blocks. The ranks of a group compute the same step at the same
  // time, and each writes the columns of its part of the vocabulary. layer_done(l) is called once the writes
  // of layer l's KV of all rows are issued and marked on every rank: from then on it may be shipped, after
  // the mark that is announced (device::Memory). On a device that is after the whole step has been issued;
  // there a step has at most Memory::kMarks layers. RowDraw::row is an index into logit_rows. tokens [draws]:
  // the token of each draw, and then its row of `logits` is undefined. Or -1, and then the row is there: the
  // backend has no sampler, no rank has the whole row, or no logit is a number.
  void Forward(const kernels::StepRows& rows, kv::KvStore& store, std::span<float> logits,
               absl::FunctionRef<void(int layer)> layer_done, const kernels::StepDraws& draws = {},
               std::span<TokenId> tokens = {});

  // Forward in two halves. Launch returns once the step is in flight (on a CPU: computed). Finish waits for
  // its results; a step without logit rows has none, and Finish makes later uploads wait for it instead.
  // Either way, the blocks that the step read and wrote may be given to other sequences after Finish. A
  // second step may be launched before the first is finished, if the first draws a token for each of its
  // logit rows. The first then delivers tokens only: no logits, not even of a row without any number.
  void Launch(const kernels::StepRows& rows, kv::KvStore& store, std::span<float> logits,
              absl::FunctionRef<void(int layer)> layer_done, const kernels::StepDraws& draws = {});
  void Finish(std::span<float> logits, std::span<TokenId> tokens);
  // LandKv with the model's table, in this rank's part of the KV. No step is in flight, and the host may look
  // into `store`.
  void Land(const Landing& landing, kv::KvStore& store) const;
  // True if the backend has a sampler for this model's vocabulary.
  bool draws() const;
  // Memory for the penalty slots [0, slots) (kernels::DeviceSampler). False if there is none, or no sampler.
  bool ReservePenaltySlots(int32_t slots);

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::model
