// Engine: a loaded model, its kernels, and the paged KV of every sequence that runs on it. It knows no
// requests, no wires and no scheduling: the services' schedulers decide what the next step computes. After
// Load, everything is for the one thread that owns the engine (see loop.h), but for the constants config()
// and fingerprint().
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/engine/batch.h"
#include "common/kernels/kernels.h"
#include "common/kv/index/block_pool.h"
#include "common/kv/store/kv_store.h"
#include "common/model/decoder.h"
#include "common/model/fingerprint.h"

namespace baton::engine {

struct EngineOptions {
  std::string model_folder;
  std::string backend = "cpu";
  // 0: all cores.
  int threads = 0;
  // Bytes of the KV pool; at least one block.
  int64_t kv_bytes = int64_t{256} << 20;
  tensor::DType key_dtype = tensor::DType::kF32;
  tensor::DType value_dtype = tensor::DType::kF32;
};

class Engine {
 public:
  // Reads the model and makes the pool. Errors say which file, which size, and what to do.
  static absl::StatusOr<std::unique_ptr<Engine>> Load(const EngineOptions& options);

  const model::ModelConfig& config() const { return decoder_->config(); }
  const model::Fingerprint& fingerprint() const { return fingerprint_; }
  // Root of a tenant's block hashes on this model.
  kv::BlockHash RootFor(const kv::TenantSalt& salt) const;
  int64_t weight_bytes() const { return decoder_->weight_bytes(); }

  kv::BlockPool& pool() { return pool_; }
  kv::KvStore& store() { return store_; }

  // One step: computes the batch and returns its logits, [batch.logit_count(), vocabulary], valid until the
  // next call. layer_done(l): layer l's KV of all rows is in the store.
  std::span<const float> Forward(const Batch& batch, absl::FunctionRef<void(int layer)> layer_done);

 private:
  Engine(std::unique_ptr<kernels::Kernels> kernels, std::unique_ptr<model::Decoder> decoder,
         kv::KvStore store);

  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<model::Decoder> decoder_;
  model::Fingerprint fingerprint_;
  kv::KvStore store_;
  kv::BlockPool pool_;
  std::vector<float> logits_;
};

}  // namespace baton::engine
