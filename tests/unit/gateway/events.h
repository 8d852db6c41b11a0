// Streams of baton.v1 for tests of what is made of them.
#pragma once

#include <string>
#include <vector>

#include "baton/v1/inference.pb.h"

namespace baton::gateway {

inline v1::GenerateResponse StartedEvent() {
  v1::GenerateResponse event;
  event.mutable_started()->set_request_id("r1");
  event.mutable_started()->set_model("m");
  event.mutable_started()->set_prompt_tokens(10);
  return event;
}

inline v1::GenerateResponse TextEvent(const std::string& text, uint32_t choice = 0) {
  v1::GenerateResponse event;
  event.mutable_delta()->set_choice(choice);
  event.mutable_delta()->set_text(text);
  return event;
}

// A part that begins; its text, or its arguments; its end. Any of them may be empty.
inline v1::GenerateResponse PartEventOf(uint32_t number, v1::PartStart::Kind begins, const std::string& text,
                                        bool ends, const std::string& name = "") {
  v1::GenerateResponse event;
  const auto add = [&]() -> v1::PartEvent& {
    v1::PartEvent& part = *event.mutable_delta()->add_parts();
    part.set_part(number);
    return part;
  };
  if (begins != v1::PartStart::KIND_UNSPECIFIED) {
    v1::PartStart& start = *add().mutable_start();
    start.set_kind(begins);
    start.set_name(name);
    if (begins == v1::PartStart::KIND_TOOL_CALL) start.set_id("call_" + std::to_string(number));
  }
  if (!text.empty()) {
    if (name.empty()) {
      add().set_text(text);
    } else {
      add().set_arguments_json(text);
    }
  }
  if (begins == v1::PartStart::KIND_TEXT) event.mutable_delta()->set_text(text);
  if (ends) add().mutable_end()->set_complete(true);
  return event;
}

inline v1::GenerateResponse FinishedEvent(v1::FinishReason reason, uint32_t choice = 0) {
  v1::GenerateResponse event;
  v1::Finished& finished = *event.mutable_finished();
  finished.set_choice(choice);
  finished.set_reason(reason);
  finished.mutable_usage()->set_prompt_tokens(10);
  finished.mutable_usage()->set_cached_tokens(4);
  finished.mutable_usage()->set_written_five_minutes_tokens(1);
  finished.mutable_usage()->set_plain_tokens(5);
  finished.mutable_usage()->set_completion_tokens(3);
  finished.mutable_usage()->set_thinking_tokens(1);
  return event;
}

// Thinking, a text and a call.
inline std::vector<v1::GenerateResponse> AnswerInParts() {
  return {StartedEvent(),
          PartEventOf(0, v1::PartStart::KIND_THINKING, "hm", true),
          PartEventOf(1, v1::PartStart::KIND_TEXT, "Let me see.", true),
          PartEventOf(2, v1::PartStart::KIND_TOOL_CALL, "{\"x\":", false, "f"),
          PartEventOf(2, v1::PartStart::KIND_UNSPECIFIED, "1}", true, "f"),
          FinishedEvent(v1::FINISH_REASON_TOOL_CALLS)};
}

}  // namespace baton::gateway
