#include "router/api/answer_fold.h"

namespace baton::router {

v1::AnswerChoice& AnswerFold::Choice(uint32_t index) {
  while (answer_.choices_size() <= static_cast<int>(index)) answer_.add_choices();
  return *answer_.mutable_choices(static_cast<int>(index));
}

void AnswerFold::Add(const v1::GenerateResponse& response) {
  if (response.has_started()) *answer_.mutable_started() = response.started();
  if (response.has_finished()) {
    *Choice(response.finished().choice()).mutable_finished() = response.finished();
  }
  if (!response.has_delta()) return;
  const v1::Delta& delta = response.delta();
  v1::AnswerChoice& choice = Choice(delta.choice());
  choice.mutable_text()->append(delta.text());
  choice.mutable_token_ids()->MergeFrom(delta.token_ids());
  choice.mutable_logprobs()->MergeFrom(delta.logprobs());
  choice.mutable_prompt_logprobs()->MergeFrom(delta.prompt_logprobs());
  choice.mutable_sampling()->MergeFrom(delta.sampling());
  choice.mutable_logits_digests()->MergeFrom(delta.logits_digests());
  for (const v1::PartEvent& event : delta.parts()) AddPart(event, choice.mutable_parts());
}

// Parts come one after the other: an event is of the last one.
void AnswerFold::AddPart(const v1::PartEvent& event, Parts* parts) {
  if (event.has_start()) {
    v1::AnswerPart& part = *parts->Add();
    switch (event.start().kind()) {
      case v1::PartStart::KIND_TOOL_CALL:
        part.mutable_tool_call()->set_id(event.start().id());
        part.mutable_tool_call()->set_name(event.start().name());
        return;
      case v1::PartStart::KIND_THINKING:
        part.mutable_thinking();
        return;
      default:
        part.mutable_text();
        return;
    }
  }
  if (parts->empty()) return;
  v1::AnswerPart& part = *parts->Mutable(parts->size() - 1);
  if (event.has_end()) {
    part.set_complete(event.end().complete());
  } else if (part.has_tool_call()) {
    part.mutable_tool_call()->mutable_arguments_json()->append(event.arguments_json());
  } else if (part.part_case() == v1::AnswerPart::kThinking) {
    part.mutable_thinking()->append(event.text());
  } else {
    part.mutable_text()->append(event.text());
  }
}

}  // namespace baton::router
