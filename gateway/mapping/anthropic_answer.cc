#include "gateway/mapping/anthropic_answer.h"

#include <algorithm>
#include <utility>

#include "gateway/mapping/moderation.h"
#include "gateway/mapping/signature.h"
#include "gateway/mapping/sse.h"
#include "gateway/mapping/warnings.h"

namespace baton::gateway {
namespace {

const char* StopOf(const v1::Finished& finished) {
  switch (finished.reason()) {
    case v1::FINISH_REASON_LENGTH:
      return "max_tokens";
    case v1::FINISH_REASON_CONTEXT_FULL:
      return "model_context_window_exceeded";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_use";
    case v1::FINISH_REASON_STOP_STRING:
      return "stop_sequence";
    case v1::FINISH_REASON_CONTENT_FILTER:
      return "refusal";
    default:
      return "end_turn";
  }
}

// input_tokens are those that were neither found in the cache nor written to it by request.
Json AnthropicUsage(const v1::Usage& usage) {
  const uint32_t written = usage.written_five_minutes_tokens() + usage.written_hour_tokens();
  return {{"input_tokens",
           usage.prompt_tokens() - std::min(usage.prompt_tokens(), usage.cached_tokens() + written)},
          {"cache_creation_input_tokens", written},
          {"cache_read_input_tokens", usage.cached_tokens()},
          {"cache_creation",
           {{"ephemeral_5m_input_tokens", usage.written_five_minutes_tokens()},
            {"ephemeral_1h_input_tokens", usage.written_hour_tokens()}}},
          {"output_tokens", usage.completion_tokens()}};
}

Json StopSequence(const v1::Finished& finished) {
  return finished.reason() == v1::FINISH_REASON_STOP_STRING ? Json(finished.stop_match()) : Json(nullptr);
}

Json MessageFrame(const v1::Started& started) {
  return {{"id", "msg_" + started.request_id()},
          {"type", "message"},
          {"role", "assistant"},
          {"model", started.model()},
          {"content", Json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

// An empty block of its kind.
Json BlockOf(const v1::PartStart& start) {
  switch (start.kind()) {
    case v1::PartStart::KIND_THINKING:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", SignatureOf("")}};
    case v1::PartStart::KIND_TOOL_CALL:
      return {{"type", "tool_use"}, {"id", start.id()}, {"name", start.name()}, {"input", Json::object()}};
    default:
      return {{"type", "text"}, {"text", ""}};
  }
}

// The edit that has cleared something of the conversation, and how much; null: none has.
Json AppliedEdits(const AnthropicAnswer& wanted, const v1::Started& started) {
  const v1::ContextReport& report = started.context();
  if (!wanted.tell_edits || report.cleared_tool_results() == 0) return nullptr;
  const Json edit = {{"type", "clear_tool_uses_20250919"},
                     {"cleared_tool_uses", report.cleared_tool_results()},
                     {"cleared_input_tokens", report.removed_tokens()}};
  return Json::object({{"applied_edits", Json::array({edit})}});
}

}  // namespace

Json AnthropicWhole(const protocol::AnswerFold& answer, const v1::Usage& usage,
                    const AnthropicAnswer& wanted) {
  const v1::AnswerChoice& choice = answer.choices()[0];
  Json message = MessageFrame(answer.started());
  for (const v1::AnswerPart& part : choice.parts()) {
    const v1::PartStart start = protocol::StartOf(part);
    const std::string& text = protocol::TextOf(part);
    Json block = BlockOf(start);
    if (start.kind() == v1::PartStart::KIND_TOOL_CALL) {
      Json input = Json::parse(text.empty() ? "{}" : text, nullptr, /*allow_exceptions=*/false);
      // A call that was cut is the answer's beginning: its text says what there was.
      if (!input.is_object()) {
        block = {{"type", "text"}, {"text", text}};
      } else {
        block["input"] = std::move(input);
      }
    } else if (start.kind() != v1::PartStart::KIND_THINKING) {
      block["text"] = text;
    } else if (wanted.hide_thinking) {
      block["signature"] = SignatureOf(text);
    } else {
      block["thinking"] = text;
    }
    message["content"].push_back(std::move(block));
  }
  if (choice.parts().empty() && !choice.text().empty()) {
    message["content"].push_back({{"type", "text"}, {"text", choice.text()}});
  }
  message["stop_reason"] = StopOf(choice.finished());
  message["stop_sequence"] = StopSequence(choice.finished());
  message["usage"] = AnthropicUsage(usage);
  if (Json edits = AppliedEdits(wanted, answer.started()); !edits.is_null()) {
    message["context_management"] = std::move(edits);
  }
  AddModeration(choice.finished(), &message);
  AddWarnings(choice.finished(), &message);
  return message;
}

std::string AnthropicEvents::Begin(const v1::PartStart& start) {
  kind_ = start.kind();
  open_ = true;
  return Event("content_block_start",
               {{"type", "content_block_start"}, {"index", blocks_++}, {"content_block", BlockOf(start)}});
}

std::string AnthropicEvents::Text(const std::string& text, bool arguments) {
  Json delta;
  if (arguments) {
    delta = {{"type", "input_json_delta"}, {"partial_json", text}};
  } else if (kind_ == v1::PartStart::KIND_THINKING && wanted_.hide_thinking) {
    hidden_ += text;
    return "";
  } else if (kind_ == v1::PartStart::KIND_THINKING) {
    delta = {{"type", "thinking_delta"}, {"thinking", text}};
  } else {
    delta = {{"type", "text_delta"}, {"text", text}};
  }
  return Event("content_block_delta",
               {{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", std::move(delta)}});
}

std::string AnthropicEvents::Close() {
  if (!std::exchange(open_, false)) return "";
  std::string bytes;
  if (kind_ == v1::PartStart::KIND_THINKING) {
    bytes = Event(
        "content_block_delta",
        {{"type", "content_block_delta"},
         {"index", blocks_ - 1},
         {"delta", {{"type", "signature_delta"}, {"signature", SignatureOf(std::exchange(hidden_, ""))}}}});
  }
  return bytes + Event("content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_ - 1}});
}

std::string AnthropicEvents::Add(const v1::GenerateResponse& event) {
  if (event.has_started()) {
    started_ = event.started();
    Json message = MessageFrame(started_);
    // How the prompt's tokens divide is known at the end, and message_delta tells it. A count that is 0 there
    // would not replace another one in Claude Code.
    message["usage"] = AnthropicUsage({});
    return Event("message_start", {{"type", "message_start"}, {"message", std::move(message)}}) +
           Event("ping", Json::object({{"type", "ping"}}));
  }
  if (event.has_finished()) {
    finished_ = event.finished();
    return Close();
  }
  const v1::Delta& delta = event.delta();
  std::string bytes;
  if (delta.parts().empty() && !delta.text().empty()) {
    v1::PartStart text;
    text.set_kind(v1::PartStart::KIND_TEXT);
    if (!open_) bytes += Begin(text);
    return bytes + Text(delta.text(), false);
  }
  for (const v1::PartEvent& part : delta.parts()) {
    if (part.has_start()) bytes += Begin(part.start());
    if (!part.text().empty()) bytes += Text(part.text(), false);
    if (!part.arguments_json().empty()) bytes += Text(part.arguments_json(), true);
    if (part.has_end()) bytes += Close();
  }
  return bytes;
}

std::string AnthropicEvents::End(const v1::Usage& usage) {
  Json last = {{"type", "message_delta"},
               {"delta", {{"stop_reason", StopOf(finished_)}, {"stop_sequence", StopSequence(finished_)}}},
               {"usage", AnthropicUsage(usage)}};
  if (Json edits = AppliedEdits(wanted_, started_); !edits.is_null())
    last["context_management"] = std::move(edits);
  AddModeration(finished_, &last);
  AddWarnings(finished_, &last);
  return Event("message_delta", last) + Event("message_stop", {{"type", "message_stop"}});
}

}  // namespace baton::gateway
