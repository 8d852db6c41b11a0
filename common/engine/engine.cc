#include "common/engine/engine.h"

#include <utility>

#include "common/base/status.h"
#include "fmt/format.h"

namespace baton::engine {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto kernels, kernels::MakeKernels(options.backend, options.threads));
  BATON_ASSIGN_OR_RETURN(auto decoder, model::Decoder::Load(options.model_folder, *kernels));
  const kv::KvLayout layout = decoder->LayoutFor(options.key_dtype, options.value_dtype);
  const int64_t blocks = options.kv_bytes / layout.block_bytes();
  if (blocks < 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes of KV memory hold no block: one takes {} bytes; raise --kv-memory",
                    options.kv_bytes, layout.block_bytes()));
  }
  BATON_ASSIGN_OR_RETURN(auto store, kv::KvStore::Create(layout, blocks));
  return std::unique_ptr<Engine>(new Engine(std::move(kernels), std::move(decoder), std::move(store)));
}

Engine::Engine(std::unique_ptr<kernels::Kernels> kernels, std::unique_ptr<model::Decoder> decoder,
               kv::KvStore store)
    : kernels_(std::move(kernels)),
      decoder_(std::move(decoder)),
      fingerprint_(model::MakeFingerprint(decoder_->config(), decoder_->weights_digest(), store.layout(),
                                          kernels_->numerics())),
      store_(std::move(store)),
      pool_(store_.blocks()) {}

kv::BlockHash Engine::RootFor(const kv::TenantSalt& salt) const {
  return kv::RootHash(fingerprint_.Digest(), salt);
}

std::span<const float> Engine::Forward(const Batch& batch, absl::FunctionRef<void(int layer)> layer_done) {
  logits_.resize(batch.logit_count() * config().vocabulary);
  decoder_->Forward(batch.View(), store_, logits_, layer_done);
  return logits_;
}

}  // namespace baton::engine
