#include "decode_service/draft_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/telemetry/load_watch.h"
#include "protocol/kv_layout.h"
#include "text/config/config.h"

namespace baton::decode_service {
namespace {

// The draft model's KV pool gets at most the model's bytes over this.
constexpr int64_t kShareOfKv = 4;

absl::Status Annotated(const std::string& folder, const absl::Status& status) {
  return {status.code(), fmt::format("--draft-model {}: {}", folder, std::string(status.message()))};
}

}  // namespace

absl::Status CheckSameTokens(const text::Tokenizer& drafts, const text::Tokenizer& model) {
  if (drafts.vocabulary() != model.vocabulary()) {
    return absl::InvalidArgumentError(
        fmt::format("its tokenizer has {} tokens, the model's has {}: a draft model needs the same tokenizer",
                    drafts.vocabulary(), model.vocabulary()));
  }
  for (int64_t id = 0; id < model.vocabulary(); ++id) {
    const TokenId token(static_cast<int32_t>(id));
    if (drafts.TokenBytes(token) == model.TokenBytes(token) &&
        drafts.IsSpecial(token) == model.IsSpecial(token)) {
      continue;
    }
    return absl::InvalidArgumentError(
        fmt::format("token {} is another one in its tokenizer than in the model's: a draft model needs the "
                    "same tokenizer",
                    id));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<engine::Engine>> LoadDraftEngine(const std::string& folder,
                                                                const engine::EngineOptions& target,
                                                                engine::Engine& model,
                                                                const text::Tokenizer& tokenizer) {
  const auto config = model::ModelConfig::Load(folder);
  if (!config.ok()) return Annotated(folder, config.status());
  if (config->vocabulary != model.config().vocabulary) {
    return Annotated(folder,
                     absl::InvalidArgumentError(fmt::format(
                         "its vocabulary is {}, the model's is {}: use a smaller model of the same family",
                         config->vocabulary, model.config().vocabulary)));
  }
  const auto own = [&folder] {
    const telemetry::LoadWatch watch(folder);
    return text::Tokenizer::Load(folder);
  }();
  if (!own.ok()) return Annotated(folder, own.status());
  if (const absl::Status same = CheckSameTokens(**own, tokenizer); !same.ok()) return Annotated(folder, same);
  engine::EngineOptions options = {.model_folder = folder,
                                   .backend = target.backend,
                                   .threads = target.threads,
                                   .cores = target.cores,
                                   .key_dtype = target.key_dtype,
                                   .value_dtype = target.value_dtype,
                                   .cuda = target.cuda};
  if (model.store().memory().host()) {
    options.key_dtype = model.store().layout().key_dtype;
    options.value_dtype = model.store().layout().value_dtype;
  }
  if (!target.devices.empty()) options.devices = {target.devices.front()};
  // A draft model's layout is known once it is loaded: its block takes this much of one of the model's.
  const auto kv_row = [](const model::ModelConfig& of) {
    return of.layers * of.kv_heads * kv::StoredHeadDim(of.head_dim);
  };
  const auto share = static_cast<double>(kv_row(*config)) / static_cast<double>(kv_row(model.config()));
  const auto bytes = static_cast<double>(model.store().blocks() * model.store().layout().block_bytes());
  options.kv_bytes = static_cast<int64_t>(bytes * std::min(share, 1.0 / kShareOfKv));
  auto engine = engine::Engine::Load(options);
  if (!engine.ok()) return Annotated(folder, engine.status());
  return engine;
}

}  // namespace baton::decode_service
