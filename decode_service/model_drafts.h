// ModelDrafts: a model that drafts answers. It is a smaller one with the same tokenizer, on an engine and in
// a pool of KV of its own (--draft-model); or the worker's own model with its weights in 4 bits, which writes
// the KV of what it drafts into the sequence's blocks behind what is computed, where the step that checks the
// draft writes over it before anything reads it (--self-draft). It draws with the sequence's own parameters
// and with the draw of the position, as the model itself does, so that both take the same token wherever they
// agree. All sequences are drafted for together: a token of each in a draft step.
//
// Nothing of a draft model's KV is published, shipped or kept: it is computed in pieces, and again wherever
// the sequence goes. Owned by the scheduler, engine thread; draft steps run between the worker's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "decode_service/model_drafter.h"
#include "decode_service/sequence.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "protocol/forecast/step_forecast.h"

namespace baton::decode_service {

struct DraftModelOptions {
  // The draft model's; null: none. The scheduler's own: it drafts for itself (Engine::ForwardDraft).
  engine::Engine* engine = nullptr;
  // Cost of a draft step, until some were seen.
  forecast::StepCost cost;
  // For benchmarks: the token that stands in place of the one that was drafted for a place of the sequence.
  std::function<TokenId(const Sequence&, int64_t place, TokenId drafted)> replay = {};
};

class ModelDrafts {
 public:
  // self: the engine is the scheduler's. Both outlive it.
  ModelDrafts(const DraftModelOptions& options, bool self, const Clock& clock);

  drafting::DrafterKind kind() const {
    return self_ ? drafting::DrafterKind::kSelf : drafting::DrafterKind::kDraftModel;
  }
  bool self() const { return self_; }
  // Forecast of draft steps.
  const forecast::StepForecast& forecast() const { return forecast_; }
  const kv::BlockPool& pool() const { return engine_.pool(); }
  std::unique_ptr<ModelDrafter> MakeDrafter();

  // Rows that the draft model has to compute of a sequence before it can draft, but for the last token's.
  int64_t Behind(const Sequence& sequence) const;
  // They are so few that the first draft step computes them.
  bool Ready(const Sequence& sequence) const { return Behind(sequence) <= kCatchUp; }
  // Tokens that may be drafted of a sequence.
  int64_t Room(const Sequence& sequence) const;
  // Computes the next `rows` of a sequence that is behind. False: there are no blocks for the sequence, and
  // it has none.
  bool Prefill(Sequence& sequence, int64_t rows);

  struct Job {
    Sequence* sequence = nullptr;
    int64_t tokens = 0;  // to be drafted, those that are included
  };
  // Drafts them. Of itself: the sequences have blocks for the tokens.
  void Draft(std::span<const Job> jobs);

 private:
  static constexpr int64_t kCatchUp = kBlockTokens;

  // Adds a sequence's rows up to its last token, drafted ones included.
  void AddRows(Sequence& sequence, forecast::StepLoad& load);
  // The next token, from the last of them; nothing if there is none.
  std::optional<TokenId> DrawNext(const engine::StepResult& result, int64_t share, const Sequence& sequence);

  engine::Engine& engine_;
  const bool self_;
  const Clock& clock_;
  forecast::StepForecast forecast_;
  const std::function<TokenId(const Sequence&, int64_t, TokenId)> replay_;
  drafting::Survival learnt_;
  sampling::Sampler sampler_;
  engine::Batch batch_;
  std::vector<TokenId> rows_;
};

}  // namespace baton::decode_service
