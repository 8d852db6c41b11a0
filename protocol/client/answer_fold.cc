#include "protocol/client/answer_fold.h"

#include <fmt/format.h>

#include <utility>

namespace baton::protocol {
namespace {

using Parts = google::protobuf::RepeatedPtrField<v1::AnswerPart>;

// Parts come one after the other: an event is of the last one.
void AddPart(const v1::PartEvent& event, Parts* parts) {
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

void AddDelta(const v1::Delta& delta, v1::AnswerChoice* choice) {
  choice->mutable_text()->append(delta.text());
  choice->mutable_token_ids()->MergeFrom(delta.token_ids());
  choice->mutable_logprobs()->MergeFrom(delta.logprobs());
  choice->mutable_prompt_logprobs()->MergeFrom(delta.prompt_logprobs());
  choice->mutable_sampling()->MergeFrom(delta.sampling());
  choice->mutable_logits_digests()->MergeFrom(delta.logits_digests());
  for (const v1::PartEvent& event : delta.parts()) AddPart(event, choice->mutable_parts());
}

}  // namespace

v1::AnswerChoice* AnswerFold::Choice(uint32_t index) {
  if (index >= most_) {
    Breaks(fmt::format("it names choice {} of {}", index, most_));
    return nullptr;
  }
  while (answer_.choices_size() <= static_cast<int>(index)) answer_.add_choices();
  return answer_.mutable_choices(static_cast<int>(index));
}

void AnswerFold::Breaks(std::string how) {
  if (broken_.empty()) broken_ = std::move(how);
}

void AnswerFold::Add(const v1::GenerateResponse& event) {
  if (event.has_started()) {
    if (answer_.has_started()) Breaks("it started twice");
    *answer_.mutable_started() = event.started();
  } else if (!answer_.has_started()) {
    Breaks("its first event is not Started");
  }
  if (event.has_delta()) {
    v1::AnswerChoice* const choice = Choice(event.delta().choice());
    if (choice == nullptr) return;
    if (choice->has_finished())
      Breaks(fmt::format("choice {} continues after its end", event.delta().choice()));
    AddDelta(event.delta(), choice);
  } else if (event.has_finished()) {
    v1::AnswerChoice* const choice = Choice(event.finished().choice());
    if (choice == nullptr) return;
    if (choice->has_finished()) Breaks(fmt::format("choice {} ended twice", event.finished().choice()));
    *choice->mutable_finished() = event.finished();
  }
}

absl::Status AnswerFold::CheckWhole(int least) const {
  std::string broken = broken_;
  if (broken.empty() && !answer_.has_started()) broken = "it has no events";
  if (broken.empty() && answer_.choices_size() < least) {
    broken = fmt::format("it has {} of {} choices", answer_.choices_size(), least);
  }
  for (int i = 0; i < answer_.choices_size() && broken.empty(); ++i) {
    if (!answer_.choices(i).has_finished()) broken = fmt::format("choice {} has no end", i);
  }
  if (broken.empty()) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("the stream of the answer is incomplete or wrong, try again: {}", broken));
}

v1::PartStart StartOf(const v1::AnswerPart& part) {
  v1::PartStart start;
  if (part.has_tool_call()) {
    start.set_kind(v1::PartStart::KIND_TOOL_CALL);
    start.set_id(part.tool_call().id());
    start.set_name(part.tool_call().name());
  } else {
    start.set_kind(part.part_case() == v1::AnswerPart::kThinking ? v1::PartStart::KIND_THINKING
                                                                 : v1::PartStart::KIND_TEXT);
  }
  return start;
}

const std::string& TextOf(const v1::AnswerPart& part) {
  if (part.has_tool_call()) return part.tool_call().arguments_json();
  return part.part_case() == v1::AnswerPart::kThinking ? part.thinking() : part.text();
}

}  // namespace baton::protocol
