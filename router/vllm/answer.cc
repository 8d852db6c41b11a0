#include "router/vllm/answer.h"

#include <algorithm>
#include <utility>

namespace baton::router::vllm {
namespace {

::vllm::FinishInfo::FinishReason ReasonOf(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_CONTEXT_FULL:
      return ::vllm::FinishInfo::LENGTH;
    default:
      return ::vllm::FinishInfo::STOP;
  }
}

}  // namespace

void Answer::AddDelta(const v1::Delta& delta, ::vllm::SequenceOutput* output) {
  output->set_index(delta.choice());
  if (shape_.text) output->mutable_text()->append(delta.text());
  output->set_num_tokens(output->num_tokens() + delta.tokens());
  tokens_[delta.choice()] += delta.tokens();
  if (shape_.token_ids) {
    for (const int32_t id : delta.token_ids()) output->add_token_ids(static_cast<uint32_t>(id));
  }
  for (const v1::StepLogprobs& step : delta.logprobs()) {
    if (shape_.logprobs) output->add_logprobs(step.chosen().logprob());
    if (!shape_.candidates) continue;
    ::vllm::CandidateTokenInfo& candidates = *output->add_candidate_tokens();
    uint32_t rank = 0;
    for (const v1::TokenLogprob& token : step.top()) {
      ++rank;
      if (token.token_id() == step.chosen().token_id()) continue;
      auto& told = *candidates.add_tokens();
      told.set_id(static_cast<uint32_t>(token.token_id()));
      told.set_logprob(token.logprob());
      told.set_rank(rank);
    }
  }
}

void Answer::AddEnd(const v1::Finished& finished, ::vllm::SequenceOutput* output) {
  output->set_index(finished.choice());
  ::vllm::FinishInfo& info = *output->mutable_finish_info();
  info.set_num_output_tokens(tokens_[finished.choice()]);
  info.set_finish_reason(ReasonOf(finished.reason()));
  if (finished.reason() == v1::FINISH_REASON_STOP_STRING) {
    info.set_stop_string(finished.stop_match());
  } else if (finished.has_stop_token_id()) {
    const bool asked = std::ranges::find(shape_.stops, finished.stop_token_id()) != shape_.stops.end();
    const auto id = static_cast<uint32_t>(finished.stop_token_id());
    asked ? info.set_stop_token_id(id) : info.set_eos_token_id(id);
  }
}

void Answer::AddPromptInfo(::vllm::GenerateResponse* message) {
  if (std::exchange(told_prompt_, true)) return;
  ::vllm::PromptInfo& info = *message->mutable_prompt_info();
  info.set_num_prompt_tokens(prompt_tokens_);
  info.mutable_token_ids()->Add(shape_.prompt.begin(), shape_.prompt.end());
}

std::optional<::vllm::GenerateResponse> Answer::Piece(const v1::GenerateResponse& response) {
  if (response.has_started()) {
    prompt_tokens_ = response.started().prompt_tokens();
    return std::nullopt;
  }
  ::vllm::GenerateResponse message;
  AddPromptInfo(&message);
  if (response.has_finished()) {
    AddEnd(response.finished(), message.mutable_outputs());
  } else {
    AddDelta(response.delta(), message.mutable_outputs());
  }
  return message;
}

::vllm::GenerateResponse Answer::Aborted() {
  ::vllm::GenerateResponse message = whole_;
  AddPromptInfo(&message);
  ::vllm::SequenceOutput& output = *message.mutable_outputs();
  output.mutable_finish_info()->set_finish_reason(::vllm::FinishInfo::ABORTED);
  output.mutable_finish_info()->set_num_output_tokens(tokens_[output.index()]);
  return message;
}

void Answer::Add(const v1::GenerateResponse& response) {
  if (response.has_started()) {
    prompt_tokens_ = response.started().prompt_tokens();
  } else if (response.has_finished()) {
    AddPromptInfo(&whole_);
    AddEnd(response.finished(), whole_.mutable_outputs());
  } else {
    AddPromptInfo(&whole_);
    AddDelta(response.delta(), whole_.mutable_outputs());
  }
}

}  // namespace baton::router::vllm
