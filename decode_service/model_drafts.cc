#include "decode_service/model_drafts.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::decode_service {

namespace {

// Chances expected before anything was seen. They are hopeful, since a worker that never drafts never learns:
// one whose model is wrong finds out once, for all answers.
constexpr drafting::Survival::Chances kOfModel = {0.8, 0.82, 0.85, 0.88, 0.9};
constexpr drafting::Survival::Chances kOfCopy = {0.88, 0.9, 0.92, 0.93, 0.94};
// The first tokens of an answer are the hardest to guess: a few of them say little of the others.
constexpr double kWeight = 8;

}  // namespace

ModelDrafts::ModelDrafts(const DraftModelOptions& options, bool self, const Clock& clock)
    : engine_(*options.engine),
      self_(self),
      clock_(clock),
      forecast_(options.cost),
      replay_(options.replay),
      learnt_(self ? kOfCopy : kOfModel, kWeight) {
  BATON_CHECK(!self || engine_.drafts());
}

std::unique_ptr<ModelDrafter> ModelDrafts::MakeDrafter() {
  return std::make_unique<ModelDrafter>(kind(), learnt_, self_ ? nullptr : &engine_.pool());
}

int64_t ModelDrafts::Behind(const Sequence& sequence) const {
  return self_ ? 0 : std::max<int64_t>(0, sequence.size() - 1 - sequence.model_drafter->computed());
}

int64_t ModelDrafts::Room(const Sequence& sequence) const {
  // The row of the last drafted token is not computed.
  return self_ ? engine_.config().context : engine_.config().context - sequence.size() + 1;
}

bool ModelDrafts::Prefill(Sequence& sequence, int64_t rows) {
  ModelDrafter& drafter = *sequence.model_drafter;
  if (!drafter.Grow(sequence.size() + kCatchUp)) {
    drafter.GiveBack();
    return false;
  }
  const int64_t first = drafter.computed();
  rows = std::min(rows, Behind(sequence));
  batch_.Clear();
  batch_.Add(
      {.tokens = std::span(sequence.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
       .first_position = first,
       .blocks = drafter.blocks()});
  forecast::StepLoad load;
  load.AddRows(first, rows);
  const absl::Time begin = clock_.Now();
  engine_.Forward(batch_, [](int) {});
  forecast_.Observe(load, absl::ToDoubleSeconds(clock_.Now() - begin));
  drafter.Computed(first + rows);
  return true;
}

void ModelDrafts::Draft(std::span<const Job> jobs) {
  std::vector<Job> left;
  for (const Job& job : jobs) {
    ModelDrafter& drafter = *job.sequence->model_drafter;
    if (self_) {
      // The step before has computed these places, or given their blocks back.
      drafter.Drop();
    } else if (!drafter.Grow(job.sequence->size() + job.tokens)) {
      drafter.Drop();
      drafter.GiveBack();
      continue;
    }
    left.push_back(job);
  }
  for (;;) {
    std::erase_if(left, [](const Job& job) {
      const auto drafted = job.sequence->model_drafter->drafted();
      return std::ssize(drafted) >= job.tokens ||
             (!drafted.empty() && job.sequence->answer->Stops(drafted.back()));
    });
    if (left.empty()) return;
    batch_.Clear();
    forecast::StepLoad load;
    for (const Job& job : left) AddRows(*job.sequence, load);
    const absl::Time begin = clock_.Now();
    const engine::StepResult result =
        self_ ? engine_.ForwardDraft(batch_) : engine_.Forward(batch_, [](int) {});
    forecast_.Observe(load, absl::ToDoubleSeconds(clock_.Now() - begin));
    int64_t share = 0;
    std::erase_if(left, [&](const Job& job) {
      Sequence& sequence = *job.sequence;
      ModelDrafter& drafter = *sequence.model_drafter;
      if (const auto drawn = DrawNext(result, share++, sequence)) {
        const int64_t place = sequence.size() + std::ssize(drafter.drafted());
        drafter.Push(replay_ ? replay_(sequence, place, *drawn) : *drawn);
        return false;
      }
      // No logit is a number. The row is computed again with the next draft.
      drafter.Drop();
      drafter.Computed(std::min(drafter.computed(), sequence.size() - 1));
      return true;
    });
  }
}

void ModelDrafts::AddRows(Sequence& sequence, forecast::StepLoad& load) {
  ModelDrafter& drafter = *sequence.model_drafter;
  const auto drafted = drafter.drafted();
  const int64_t size = sequence.size() + std::ssize(drafted);
  const int64_t first = self_ ? size - 1 : drafter.computed();
  rows_.clear();
  for (int64_t at = first; at < size; ++at) {
    rows_.push_back(at < sequence.size() ? sequence.tokens[static_cast<size_t>(at)]
                                         : drafted[static_cast<size_t>(at - sequence.size())]);
  }
  batch_.Add({.tokens = rows_,
              .first_position = first,
              .blocks = self_ ? sequence.kv().blocks() : drafter.blocks(),
              .logit_rows = 1});
  if (!sequence.sampling.Penalises()) batch_.Draw(sequence.sampling, size);
  ++load.running;
  load.context += size;
  if (size - first > 1) load.AddRows(first, size - first - 1);
  if (!self_) drafter.Computed(size);
}

std::optional<TokenId> ModelDrafts::DrawNext(const engine::StepResult& result, int64_t share,
                                             const Sequence& sequence) {
  const ModelDrafter& drafter = *sequence.model_drafter;
  if (const auto drawn = result.drawn(share)) return drawn;
  const sampling::History* history = &sequence.history;
  sampling::History further;
  if (sequence.sampling.Penalises() && !drafter.drafted().empty()) {
    further = sequence.history;
    for (const TokenId token : drafter.drafted()) further.AddOutput(token);
    history = &further;
  }
  const auto position = static_cast<uint64_t>(sequence.size() + std::ssize(drafter.drafted()));
  const auto draw =
      sampler_.Sample(result.logits(share), sequence.sampling, *history, position, std::nullopt);
  if (!draw.ok()) return std::nullopt;
  return draw->token;
}

}  // namespace baton::decode_service
