// Engine: a loaded model, its kernels, and the paged KV of every sequence that runs on it. It knows no
// requests, no wires and no scheduling: the services' schedulers decide what the next step computes. After
// Load, everything is for the one thread that owns the engine (see loop.h), but for the constants config()
// and fingerprint(). Under tensor parallelism that thread is rank 0 and leads the others (rank_threads.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/batch.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/index/block_pool.h"
#include "engine/kv/store/kv_store.h"
#include "engine/model/decoder.h"
#include "engine/rank_threads.h"
#include "engine/ranks_memory.h"
#include "engine/step_result.h"
#include "protocol/fingerprint.h"

namespace baton::engine {

struct EngineOptions {
  std::string model_folder;
  std::string backend = "cpu";
  // 0: all cores.
  int threads = 0;
  // Null: `threads` are its own. Otherwise it computes on the cores that the share has, if it is of one rank
  // and on "cpu"; outlives the engine. Whoever owns the engine's thread calls Rest when that has nothing to
  // do.
  device::CoreShare* cores = nullptr;
  // Ranks that share the work of each step (tensor parallelism), on one machine.
  int tp = 1;
  // Bytes of the KV pool, over all ranks; at least one block. 0: most of what a GPU has left, measured once
  // the weights are there. Unset: 256 MiB, and 0 on GPUs.
  std::optional<int64_t> kv_bytes;
  static constexpr int64_t kHostKvBytes = int64_t{256} << 20;
  // Set: as many blocks, at least one, whatever they take.
  std::optional<int64_t> kv_blocks;
  // Unset: bf16, or f32 if no matrix is multiplied in less (Kernels::kv_dtype); on GPUs the dtype of the
  // activations (f16 for models of f16, otherwise bf16), which attention there copies as it is; f32 on
  // "reference".
  std::optional<tensor::DType> key_dtype, value_dtype;
  // The precision of matrices; they are converted at load, by all threads.
  model::WeightPrecision weights = model::WeightPrecision::kStored;
  // Where a mixture's experts lie instead of memory (model::PackExperts), and the most bytes of them that are
  // in memory at once; empty: all are in memory. One rank, on "cpu", without draft_weights.
  std::string expert_file;
  int64_t expert_memory = 0;
  // A second copy of the weights in this precision, for ForwardDraft. Unset: none.
  std::optional<model::WeightPrecision> draft_weights;
  // Called while matrices are converted, by the thread that loads the first rank's part. Empty: a worker logs
  // it.
  model::ConversionProgress weights_progress = {};
  // Pair with workers whose sums round elsewhere (another tp): tokens may then differ from those of one
  // worker alone. GPUs promise no bits, so there it changes nothing.
  bool tolerant = false;
  // Options of the backend "cuda", except the device.
  kernels::CudaOptions cuda;
  // The GPUs that the ranks compute on, in their order. Empty: 0 to tp - 1.
  std::vector<int> devices;
};

class Engine {
 public:
  // Reads the model and makes the pool. Errors say which file, which size, and what to do.
  static absl::StatusOr<std::unique_ptr<Engine>> Load(const EngineOptions& options);

  ~Engine();

  const model::ModelConfig& config() const { return ranks_.front().decoder->config(); }
  const protocol::Fingerprint& fingerprint() const { return fingerprint_; }
  // model::Decoder::contradiction.
  const std::string& contradiction() const { return ranks_.front().decoder->contradiction(); }
  // Root of a tenant's block hashes on this model.
  kv::BlockHash RootFor(const kv::TenantSalt& salt) const;
  // Over all ranks.
  int64_t weight_bytes() const;
  // The store of experts outside memory; null if all are in memory. Its stats are for any thread.
  const model::ExpertStore* expert_store() const { return ranks_.front().decoder->expert_store(); }

  kv::BlockPool& pool() { return pool_; }
  // Where each rank keeps its part of the blocks.
  std::vector<device::Memory*> memories() const;
  // The KV of all ranks together.
  kv::KvStore& store() { return joint_ ? *joint_ : *ranks_.front().store; }

  // One step: computes the batch. layer_done(l) is called when layer l's KV of all rows is in the store.
  // The batch is not empty.
  StepResult Forward(const Batch& batch, absl::FunctionRef<void(int layer)> layer_done);
  // The same in two halves: Launch starts the step, Finish waits for the oldest step that was launched. Where
  // overlaps(), Launch returns while the step is in flight, and the next step may be launched before it is
  // finished if this one draws a token for every row: the next one's rows may continue with those tokens
  // (Batch::AddFuture). Finish then returns the tokens of this step and no logits.
  void Launch(const Batch& batch, absl::FunctionRef<void(int layer)> layer_done);
  StepResult Finish();
  bool overlaps() const { return ranks_.front().decoder->draws(); }
  // A step with the second copy of the weights, over the same KV store: what it writes there is not the KV of
  // the model, and is to be written over before anything reads it as that. No step is in flight.
  StepResult ForwardDraft(const Batch& batch);
  bool drafts() const { return ranks_.front().draft != nullptr; }
  // Has KV of one sequence land in another one's blocks (model/landing.h), on all ranks. No step is in
  // flight.
  void Land(const model::Landing& landing);
  // UNIMPLEMENTED: the backend keeps KV where the host can't look into it.
  absl::Status CheckLands() const;
  // A place where the backend counts the tokens of a sequence with penalties, for Batch::Draw. Null: it
  // can't.
  std::unique_ptr<PenaltySlot> TakePenaltySlot() { return penalty_slots_.Take(); }

 private:
  struct Rank {
    std::unique_ptr<kernels::Kernels> kernels;
    std::unique_ptr<kernels::Collective> group;  // null if there is one rank
    std::unique_ptr<model::Decoder> decoder;
    std::string numerics;                          // of the decoder's own weights alone
    tensor::DType kv_dtype = tensor::DType::kF32;  // that fits them
    std::unique_ptr<model::Decoder> draft;         // null: none
    std::optional<kv::KvStore> store;
  };
  using DecoderOf = std::unique_ptr<model::Decoder> Rank::*;
  Engine(std::vector<Rank> ranks, std::unique_ptr<RankThreads> threads, bool tolerant);
  void LaunchOn(DecoderOf decoder, const Batch& batch, absl::FunctionRef<void(int layer)> layer_done);
  StepResult FinishOn(DecoderOf decoder);
  // Makes room for `slots` penalty slots on every rank. If one rank can't, false, and no new slot is used.
  bool ReservePenaltySlots(int32_t slots);

  // A step between Launch and Finish.
  struct InFlightStep {
    std::vector<SequenceShare> shares;
    int64_t logit_rows = 0;
    std::vector<int64_t> drawn;  // logit rows from which tokens are drawn
  };

  std::vector<Rank> ranks_;
  const std::unique_ptr<RankThreads> threads_;
  std::optional<RanksMemory> ranks_memory_;  // if there are several ranks
  std::optional<kv::KvStore> joint_;         // likewise
  const protocol::Fingerprint fingerprint_;
  kv::BlockPool pool_;
  std::vector<float> logits_;
  std::deque<InFlightStep> in_flight_;
  PenaltySlots penalty_slots_{[this](int32_t slots) { return ReservePenaltySlots(slots); }};
};

}  // namespace baton::engine
