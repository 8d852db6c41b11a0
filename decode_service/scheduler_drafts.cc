// The scheduler's part in drafts: who guesses, how many of the guesses a step checks, and what is counted of
// them. A draft costs nobody else anything: it takes rows that the controller finds worth their seconds, and
// blocks that are free or that its sequence takes next in any case, which it gives back after the step if
// they were not needed. So no request is refused and no sequence preempted for one.
//
// Where the engine overlaps steps, a step that checks drafts is waited for, and so is the one before it: its
// tokens say what to draft. That costs the time in which the host would have worked beside the device, once a
// step; a step that checks nothing overlaps as before.
#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "decode_service/drafting/controller.h"
#include "decode_service/drafting/ngram_drafter.h"
#include "decode_service/grammar_drafter.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {
namespace {

// Of what the worker has, what the request allows.
Speculation Allowed(const Speculation& has, v1::Speculation asked) {
  const bool any = asked == v1::SPECULATION_UNSPECIFIED || asked == v1::SPECULATION_AUTO;
  return {.ngram = has.ngram && (any || asked == v1::SPECULATION_NGRAM),
          .past_answers = has.past_answers && (any || asked == v1::SPECULATION_PAST_ANSWERS),
          .grammar = has.grammar && (any || asked == v1::SPECULATION_GRAMMAR),
          .draft_model = has.draft_model && (any || asked == v1::SPECULATION_DRAFT_MODEL),
          .self = has.self && (any || asked == v1::SPECULATION_SELF)};
}

}  // namespace

std::vector<std::string> SpeculationNames() {
  std::vector<std::string> names;
  for (const drafting::DrafterKind kind : drafting::kDrafterKinds) names.emplace_back(NameOf(kind));
  return names;
}

Speculation SpeculationOf(std::string_view how) {
  const std::vector<std::string> names = absl::StrSplit(std::string(how), ',');
  const auto has = [&](drafting::DrafterKind kind) {
    return how == "auto" || std::ranges::find(names, NameOf(kind)) != names.end();
  };
  return {.ngram = has(drafting::DrafterKind::kNgram),
          .past_answers = has(drafting::DrafterKind::kPastAnswers),
          .grammar = has(drafting::DrafterKind::kGrammar),
          .draft_model = has(drafting::DrafterKind::kDraftModel),
          .self = has(drafting::DrafterKind::kSelf)};
}

void Scheduler::BeginDrafts(Sequence& sequence) {
  if (sequence.warms()) return;
  const Speculation allowed = Allowed(options_.speculation, sequence.speculation);
  auto& drafters = sequence.drafters;
  if (options_.speculation.make && sequence.speculation != v1::SPECULATION_OFF) {
    drafters = options_.speculation.make(sequence);
  }
  if (allowed.grammar && sequence.grammar != nullptr) {
    sequence.grammar->LookForForced();
    drafters.push_back(std::make_unique<GrammarDrafter>(*sequence.grammar));
  }
  if (allowed.ngram) drafters.push_back(std::make_unique<drafting::NgramDrafter>());
  if (allowed.past_answers) {
    auto drafter = past_answers_.DrafterFor(sequence.salt, clock_.Now());
    if (drafter != nullptr) drafters.push_back(std::move(drafter));
  }
  if (models_.has_value() && (models_->self() ? allowed.self : allowed.draft_model)) {
    auto drafter = models_->MakeDrafter();
    sequence.model_drafter = drafter.get();
    drafters.push_back(std::move(drafter));
  }
  FollowDrafts(sequence);
}

void Scheduler::FollowDrafts(Sequence& sequence) {
  for (const auto& drafter : sequence.drafters) drafter->Follow(sequence.tokens);
}

void Scheduler::RememberAnswer(const Sequence& sequence) {
  if (!Allowed(options_.speculation, sequence.speculation).past_answers) return;
  const auto tokens = std::span(sequence.tokens);
  const auto prompt = static_cast<size_t>(sequence.prompt_tokens);
  past_answers_.Add(sequence.salt, tokens.first(prompt), tokens.subspan(prompt), clock_.Now());
}

void Scheduler::Guess(Sequence& sequence, int64_t most) {
  sequence.draft.Clear();
  if (most <= 0) return;
  drafting::Draft guess;
  for (const auto& drafter : sequence.drafters) {
    guess.Clear();
    guess.kind = drafter->kind();
    drafter->Guess(sequence.tokens, static_cast<size_t>(most), guess);
    BATON_CHECK(guess.tokens.size() == guess.survival.size() && std::ssize(guess.tokens) <= most);
    if (guess.Expected() > sequence.draft.Expected()) std::swap(guess, sequence.draft);
  }
  // What is no token of the model ends a draft: it could not be computed.
  const auto& config = engine_.config();
  const auto none = std::ranges::find_if(sequence.draft.tokens, [&](TokenId token) {
    return token.value() < 0 || token.value() >= config.vocabulary;
  });
  const auto left = static_cast<size_t>(none - sequence.draft.tokens.begin());
  sequence.draft.tokens.resize(left);
  sequence.draft.survival.resize(left);
}

drafting::Bounds Scheduler::DraftBounds(const forecast::StepLoad& load) const {
  const int64_t context = load.running > 0 ? load.context / load.running : 0;
  const double alone = forecast_.Seconds({.running = 1, .context = context});
  drafting::Bounds bounds = {.rows = options_.step.token_budget - load.running,
                             .seconds = forecast::TargetOfStep(planner_.slo_tpot(), alone)};
  const bool prompts = std::ranges::any_of(sequences_, [](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.phase == Sequence::Phase::kPrefilling && !(sequence.paused && sequence.owes_prompt());
  });
  if (!prompts) return bounds;
  // They get none of the drafted tokens, and have half of the time that the step leaves.
  const double plain = forecast_.Seconds(load);
  bounds.seconds = plain + (std::max(planner_.slo_tpot(), plain) - plain) / 2;
  bounds.by_token = false;
  return bounds;
}

void Scheduler::PlanDrafts(std::vector<PlannerSequence>& view) {
  step_drafts_ = {};
  DraftWithModel();
  forecast::StepLoad load;
  std::vector<PlannerSequence*> guessed;
  std::vector<drafting::Offer> offers;
  for (PlannerSequence& seen : view) {
    if (seen.state != PlannerSequence::State::kRunning) continue;
    ++load.running;
    load.context += seen.size;
    Sequence& sequence = *sequences_.at(seen.id);
    if (seen.future_draw.has_value() || sequence.drafters.empty()) continue;
    // The token behind the last drafted one is drawn in any case.
    Guess(sequence, std::min(drafting::kMaxDraft, sequence.limit() - sequence.size() - 1));
    if (sequence.draft.tokens.empty()) continue;
    guessed.push_back(&seen);
    offers.push_back({.survival = sequence.draft.survival, .context = sequence.size()});
  }
  drafting::Bounds bounds = DraftBounds(load);
  for (const Drafts& drafts : step_drafts_) bounds.spent += drafts.seconds;
  const std::vector<int64_t> granted = drafting::GrantRows(offers, load, forecast_, bounds);
  for (size_t i = 0; i < guessed.size(); ++i) {
    Sequence& sequence = *sequences_.at(guessed[i]->id);
    const int64_t drafted = GrowForDraft(sequence, granted[i]);
    guessed[i]->drafted = drafted;
    probe_.drafts().Refused(sequence.draft.kind, std::ssize(sequence.draft.tokens) - granted[i]);
  }
  TrimAfterModel(view);
}

bool Scheduler::DraftsWait() {
  forecast::StepLoad load;
  std::vector<drafting::Offer> offers;
  for (const auto& [id, owned] : sequences_) {
    Sequence& sequence = *owned;
    if (sequence.phase != Sequence::Phase::kRunning || sequence.stands()) continue;
    ++load.running;
    load.context += sequence.size();
    if (sequence.drafters.empty()) continue;
    // The step in flight draws the first of these tokens; what follows could be checked in the next.
    Guess(sequence, std::min(drafting::kMaxDraft + 1, sequence.limit() - sequence.size() - 1));
    if (sequence.draft.tokens.size() < 2) continue;
    offers.push_back(
        {.survival = std::span(sequence.draft.survival).subspan(1), .context = sequence.size() + 1});
  }
  drafting::Bounds bounds = DraftBounds(load);
  // One first token that is wrong, and its sequence has no draft in the step that was waited for.
  if (load.running > 1) bounds.by_token = false;
  const std::vector<int64_t> granted = drafting::GrantRows(offers, load, forecast_, bounds);
  return std::ranges::any_of(granted, [](int64_t rows) { return rows > 0; }) ||
         !PlanModelDrafts(true).empty();
}

int64_t Scheduler::GrowForDraft(Sequence& sequence, int64_t drafted) {
  engine::SequenceKv& kv = sequence.kv();
  const int64_t own = BlocksFor(sequence.size()) + 1;  // its next one included
  for (int64_t blocks = std::ssize(kv.blocks()); blocks < BlocksFor(sequence.size() + drafted); ++blocks) {
    // What others have cached is worth more than a guess.
    if (blocks >= own && engine_.pool().counts().free == 0) break;
    if (!kv.Grow((blocks + 1) * kBlockTokens).ok()) break;
  }
  return std::min(drafted, std::ssize(kv.blocks()) * kBlockTokens - sequence.size());
}

void Scheduler::DraftChecked(Sequence& sequence, int64_t drafted) {
  const drafting::DrafterKind kind = sequence.draft.kind;
  sequence.report.Drafted(drafted);
  probe_.drafts().Checked(kind, sequence.kind, drafted);
  step_drafts_[static_cast<size_t>(kind)].drafted += drafted;
}

void Scheduler::DraftAccepted(const Sequence& sequence) {
  const drafting::DrafterKind kind = sequence.draft.kind;
  probe_.drafts().Accepted(kind, sequence.kind, *sequence.checks);
  ++step_drafts_[static_cast<size_t>(kind)].accepted;
}

void Scheduler::CountSavings(const InFlightStep& step) {
  // Of the step without drafts and prompts: an accepted token saves a sequence's share of one such.
  if (step.plan.load.running == 0) return;
  forecast::StepLoad plain = {.running = step.plan.load.running, .context = step.plan.load.context};
  const double seconds = forecast_.Seconds(plain);
  const double share = seconds / static_cast<double>(plain.running);
  plain.drafted = step.plan.load.drafted;
  plain.drafted_pairs = step.plan.load.drafted_pairs;
  const double row =
      (forecast_.Seconds(plain) - seconds) / std::max<double>(1, static_cast<double>(plain.drafted));
  for (const drafting::DrafterKind kind : drafting::kDrafterKinds) {
    const Drafts& drafts = step_drafts_[static_cast<size_t>(kind)];
    if (drafts.drafted == 0 && drafts.seconds == 0) continue;
    probe_.drafts().Saved(kind, static_cast<double>(drafts.accepted) * share -
                                    static_cast<double>(drafts.drafted) * row - drafts.seconds);
  }
}

}  // namespace baton::decode_service
