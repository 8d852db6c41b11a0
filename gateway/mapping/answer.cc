#include "gateway/mapping/answer.h"

namespace baton::gateway {

Answer::Choice& Answer::At(uint32_t choice) {
  choice = std::min(choice, most_ - 1);
  if (choices_.size() <= choice) choices_.resize(choice + 1);
  return choices_[choice];
}

void Answer::Add(const v1::GenerateResponse& event) {
  if (event.has_started()) {
    started_ = event.started();
  } else if (event.has_finished()) {
    At(event.finished().choice()).finished = event.finished();
  } else if (event.has_delta()) {
    Choice& choice = At(event.delta().choice());
    choice.text += event.delta().text();
    choice.logprobs.insert(choice.logprobs.end(), event.delta().logprobs().begin(),
                           event.delta().logprobs().end());
    choice.prompt_logprobs.insert(choice.prompt_logprobs.end(), event.delta().prompt_logprobs().begin(),
                                  event.delta().prompt_logprobs().end());
    choice.sampling.insert(choice.sampling.end(), event.delta().sampling().begin(),
                           event.delta().sampling().end());
    for (const v1::PartEvent& part : event.delta().parts()) {
      if (part.has_start()) choice.parts.push_back({.start = part.start()});
      if (choice.parts.empty()) continue;
      choice.parts.back().text += part.text() + part.arguments_json();
      if (part.has_end()) choice.parts.back().complete = part.end().complete();
    }
  }
}

absl::Status Answer::CheckWhole(size_t least) const {
  if (started_.request_id().empty() || choices_.size() < least) {
    return absl::InternalError("the router's stream ended before it began: try again");
  }
  for (const Choice& choice : choices_) {
    if (!choice.finished.has_value()) {
      return absl::InternalError("the router's stream ended before the answer did: try again");
    }
  }
  return absl::OkStatus();
}

v1::Usage UsageOf(const std::optional<v1::RequestUsage>& told, std::span<const Answer::Choice> choices) {
  if (told.has_value()) return told->usage();
  v1::Usage sum;
  for (const Answer::Choice& choice : choices) {
    if (!choice.finished.has_value()) continue;
    const v1::Usage& usage = choice.finished->usage();
    const uint32_t completion = sum.completion_tokens() + usage.completion_tokens();
    const uint32_t thinking = sum.thinking_tokens() + usage.thinking_tokens();
    const uint32_t drafted = sum.drafted_tokens() + usage.drafted_tokens();
    const uint32_t accepted = sum.accepted_tokens() + usage.accepted_tokens();
    if (sum.prompt_tokens() == 0) sum = usage;
    sum.set_drafted_tokens(drafted);
    sum.set_accepted_tokens(accepted);
    sum.set_completion_tokens(completion);
    sum.set_thinking_tokens(thinking);
  }
  return sum;
}

void AddUsage(const v1::Usage& one, v1::Usage* sum) {
  sum->set_prompt_tokens(sum->prompt_tokens() + one.prompt_tokens());
  sum->set_completion_tokens(sum->completion_tokens() + one.completion_tokens());
  sum->set_thinking_tokens(sum->thinking_tokens() + one.thinking_tokens());
  sum->set_drafted_tokens(sum->drafted_tokens() + one.drafted_tokens());
  sum->set_accepted_tokens(sum->accepted_tokens() + one.accepted_tokens());
  sum->set_cached_tokens(sum->cached_tokens() + one.cached_tokens());
  sum->set_approximate_reused_tokens(sum->approximate_reused_tokens() + one.approximate_reused_tokens());
  sum->set_written_five_minutes_tokens(sum->written_five_minutes_tokens() +
                                       one.written_five_minutes_tokens());
  sum->set_written_hour_tokens(sum->written_hour_tokens() + one.written_hour_tokens());
}

}  // namespace baton::gateway
