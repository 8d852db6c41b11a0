// RequestFlow's part in moderation: what goes through the gates, and what verdicts do.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/status.h"
#include "router/api/request_flow.h"
#include "router/moderation/text.h"

namespace baton::router {

using moderation::Policy;

void RequestFlow::StartModeration(Actions* actions) {
  if (!prepared_.moderation.has_value()) return;
  const ModerationPlan& plan = *prepared_.moderation;
  const bool holds = plan.policy == Policy::kBlock;
  // The message that is answered takes its share of what a verdict may read.
  const size_t room = plan.moderator->room() - std::min(plan.question.size(), plan.moderator->room() / 2);
  if (plan.input.has_value()) {
    prompt_moderated_ = std::make_unique<Moderated>(Moderated{.gate = {holds, plan.moderator->room()}});
    prompt_moderated_->gate.AddText(*plan.input);
    prompt_moderated_->gate.End();
    prepared_.moderation->input.reset();
    JudgePrompt(actions);
  }
  // A request that generates nothing has no answer to judge.
  if (prepared_.request.stop().max_tokens() == 0) return;
  const v1::OutputOptions& output = prepared_.request.output();
  for (ChoiceState& state : choices_) {
    state.moderated = std::make_unique<Moderated>(Moderated{.gate = {holds, room}});
    if (prepared_.token_ids || output.logprobs() || output.explain()) {
      state.moderated->tokens.emplace(prepared_.model->tokenizer, output.special_tokens());
    }
  }
}

void RequestFlow::Moderate(int choice, Actions* actions) {
  ChoiceState& state = choices_[choice];
  Moderated& moderated = *state.moderated;
  std::vector<v1::Delta> passed = moderated.gate.Take();
  if (!passed.empty() && moderated.held_since.has_value()) {
    if (options_.moderation != nullptr) options_.moderation->Held(clock_.Now() - *moderated.held_since);
    moderated.held_since.reset();
    if (moderated.gate.held() > 0) moderated.held_since = clock_.Now();
  }
  for (v1::Delta& delta : passed) SendDelta(choice, std::move(delta), actions);
  if (auto text = moderated.gate.Next(); text.has_value()) {
    AskForVerdict(choice, {.text = *std::move(text), .question = prepared_.moderation->question}, actions);
  }
  // With POLICY_SCORE the prompt's verdict may still be out.
  if (!moderated.ending.has_value() || !moderated.gate.Done()) return;
  if (prompt_moderated_ != nullptr && !prompt_moderated_->gate.Done()) return;
  EndChoice(choice, *std::exchange(moderated.ending, std::nullopt), actions);
}

void RequestFlow::JudgePrompt(Actions* actions) {
  auto text = prompt_moderated_->gate.Next();
  if (text.has_value()) AskForVerdict(Judge::kPrompt, {.text = *std::move(text), .answer = false}, actions);
}

void RequestFlow::AskForVerdict(int choice, moderation::Passage passage, Actions* actions) {
  ++judging_;
  actions->push_back(
      Judge{.choice = choice,
            .passage = std::move(passage),
            .deadline = std::min(options_.deadline, clock_.Now() + prepared_.moderation->timeout),
            .trace = trace_.context()});
}

Actions RequestFlow::OnVerdict(int choice, absl::StatusOr<moderation::Verdict> verdict) {
  Actions actions;
  --judging_;
  if (end_.has_value()) return actions;
  const bool prompt = choice == Judge::kPrompt;
  Moderated& moderated = prompt ? *prompt_moderated_ : *choices_[choice].moderated;
  if (verdict.ok()) {
    outcome_.moderation_tokens += verdict->tokens;
    moderated.tokens_used += verdict->tokens;
    AddVerdict(*verdict, &moderated.result);
  } else if (prepared_.moderation->fail_open || prepared_.moderation->policy == Policy::kScore) {
    moderated.result.set_unavailable(true);
    if (options_.moderation != nullptr && prepared_.moderation->policy == Policy::kBlock) {
      options_.moderation->PassedUnjudged();
    }
  } else {
    EndWith(
        rpc::WithReason(
            absl::UnavailableError(fmt::format(
                "moderation: the classifier {} gave no verdict, and nothing is sent without one; retry ({})",
                prepared_.moderation->moderator->name(), std::string(verdict.status().message()))),
            v1::REASON_CLASSIFIER_UNAVAILABLE),
        &actions);
    return actions;
  }
  const bool bad = verdict.ok() && verdict->flagged && prepared_.moderation->policy == Policy::kBlock;
  if (prompt) {
    OnPromptVerdict(bad, &actions);
  } else if (bad) {
    Block(choice, &actions);
  } else {
    moderated.gate.Passed();
    Moderate(choice, &actions);
    if (choices_[choice].state == State::kRunning) AskForEvent(choice, &actions);
  }
  FinishIfDone(&actions);
  return actions;
}

void RequestFlow::OnPromptVerdict(bool bad, Actions* actions) {
  if (bad) {
    if (options_.moderation != nullptr) options_.moderation->Blocked(true);
    SendStarted(actions);
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].state = State::kDone;
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      v1::Finished finished;
      finished.set_reason(v1::FINISH_REASON_CONTENT_FILTER);
      finished.mutable_usage();
      finished.mutable_timing()->set_e2e_seconds(absl::ToDoubleSeconds(clock_.Now() - options_.arrival));
      EndChoice(static_cast<int>(i), std::move(finished), actions);
    }
    return;
  }
  prompt_moderated_->gate.Passed();
  JudgePrompt(actions);
  if (!prompt_moderated_->gate.Done()) return;
  if (prepared_.moderation->policy == Policy::kBlock) return SubmitAll(actions);
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].moderated != nullptr) Moderate(static_cast<int>(i), actions);
  }
}

void RequestFlow::Block(int choice, Actions* actions) {
  ChoiceState& state = choices_[choice];
  if (options_.moderation != nullptr) options_.moderation->Blocked(false);
  v1::Finished finished;
  if (state.moderated->ending.has_value()) {
    // Its worker is done; only how it ended is not told.
    finished = *std::exchange(state.moderated->ending, std::nullopt);
    finished.clear_stop_match();
    finished.clear_stop_token_id();
    finished.clear_warnings();
  } else {
    *finished.mutable_timing() = state.opening.timing();
    *finished.mutable_usage() = state.opening.usage();
    Complete(choice, &finished);
    if (state.state == State::kRunning) state.placement.Finished(&finished, {});
    if (state.state == State::kWaiting) actions->push_back(Withdraw{choice});
    if (state.open) actions->push_back(HangUp{choice});
    state.placement.booking.Release();
  }
  finished.set_reason(v1::FINISH_REASON_CONTENT_FILTER);
  EndChoice(choice, std::move(finished), actions);
}

void RequestFlow::TellModeration(int choice, v1::Finished* finished) {
  const Moderated* const moderated = choices_[choice].moderated.get();
  v1::ModerationResult* const result = finished->mutable_moderation();
  int64_t tokens = 0;
  if (moderated != nullptr) {
    *result = moderated->result;
    tokens += moderated->tokens_used;
  }
  if (prompt_moderated_ != nullptr) {
    const v1::ModerationResult& prompt = prompt_moderated_->result;
    const uint32_t verdicts = result->verdicts() + prompt.verdicts();
    const bool unavailable = result->unavailable() || prompt.unavailable();
    // The answer's own finding goes before the prompt's.
    if (prompt.flagged() && !result->flagged()) {
      *result = prompt;
      result->set_input(true);
    }
    result->set_verdicts(verdicts);
    result->set_unavailable(unavailable);
    // Once, as the prompt's own tokens.
    if (choice == 0) tokens += prompt_moderated_->tokens_used;
  }
  finished->mutable_usage()->set_moderation_tokens(static_cast<uint32_t>(tokens));
  if (!outcome_.moderation.has_value() || (result->flagged() && !outcome_.moderation->flagged())) {
    const bool unavailable = outcome_.moderation.has_value() && outcome_.moderation->unavailable();
    outcome_.moderation = *result;
    if (unavailable) outcome_.moderation->set_unavailable(true);
  } else if (result->unavailable()) {
    outcome_.moderation->set_unavailable(true);
  }
}

}  // namespace baton::router
