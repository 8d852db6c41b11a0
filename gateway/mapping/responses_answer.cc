#include "gateway/mapping/responses_answer.h"

#include <fmt/format.h>

#include "gateway/mapping/http_status.h"
#include "gateway/mapping/moderation.h"
#include "gateway/mapping/openai_answer.h"
#include "gateway/mapping/signature.h"
#include "gateway/mapping/sse.h"
#include "gateway/mapping/warnings.h"

namespace baton::gateway {
namespace {

constexpr const char* kInProgress = "in_progress";

const char* StatusOf(bool complete) { return complete ? "completed" : "incomplete"; }

// Why an answer is not whole; null: it is.
const char* CutBy(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_CONTEXT_FULL:
      return "max_output_tokens";
    case v1::FINISH_REASON_CONTENT_FILTER:
      return "content_filter";
    default:
      return nullptr;
  }
}

// Item `index` of an answer. Its id is made of the request's, so that an answer's items have names of their
// own.
std::string ItemId(v1::PartStart::Kind kind, const v1::Started& started, size_t index) {
  const char* const prefix = kind == v1::PartStart::KIND_THINKING    ? "rs"
                             : kind == v1::PartStart::KIND_TOOL_CALL ? "fc"
                                                                     : "msg";
  return fmt::format("{}_{}_{}", prefix, started.request_id(), index);
}

Json ThinkingPart(const std::string& text, bool summary) {
  return {{"type", summary ? "summary_text" : "reasoning_text"}, {"text", text}};
}

Json TextPart(const std::string& text) {
  return {
      {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

Json ThinkingItem(const std::string& id, const std::string& text, const char* status,
                  const ResponsesAnswer& wanted) {
  Json parts = Json::array();
  if (status != kInProgress) parts.push_back(ThinkingPart(text, wanted.summary));
  Json item = {{"type", "reasoning"},
               {"id", id},
               {"summary", Json::array()},
               {"content", Json::array()},
               {"status", status}};
  item[wanted.summary ? "summary" : "content"] = std::move(parts);
  if (wanted.encrypted && status != kInProgress) item["encrypted_content"] = SignatureOf(text);
  return item;
}

Json CallItem(const v1::PartStart& start, const std::string& id, const std::string& text, const char* status,
              const ToolNames& names) {
  const ToolNames::Name name = names.Of(start.name());
  Json call = {{"type", "function_call"}, {"id", id},          {"call_id", start.id()},
               {"name", name.name},       {"arguments", text}, {"status", status}};
  if (!name.space.empty()) call["namespace"] = name.space;
  return call;
}

Json ItemOf(const v1::PartStart& start, const std::string& id, const std::string& text, const char* status,
            const ResponsesAnswer& wanted) {
  Json content = Json::array();
  switch (start.kind()) {
    case v1::PartStart::KIND_THINKING:
      return ThinkingItem(id, text, status, wanted);
    case v1::PartStart::KIND_TOOL_CALL:
      return CallItem(start, id, text, status, wanted.names);
    default:
      if (status != kInProgress) content.push_back(TextPart(text));
      return {{"type", "message"},
              {"id", id},
              {"role", "assistant"},
              {"status", status},
              {"content", std::move(content)}};
  }
}

Json ResponsesUsage(const v1::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens()},
          {"input_tokens_details",
           {{"cached_tokens", usage.cached_tokens()},
            {"cache_write_tokens", usage.written_five_minutes_tokens() + usage.written_hour_tokens()}}},
          {"output_tokens", usage.completion_tokens()},
          {"output_tokens_details", CompletionDetails(usage)},
          {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()}};
}

Json ResponseFrame(const v1::Started& started, int64_t created, const Json& echo, const char* status) {
  Json frame = {{"id", "resp_" + started.request_id()},
                {"object", "response"},
                {"created_at", created},
                {"status", status},
                {"background", false},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", started.model()},
                {"output", Json::array()},
                {"usage", nullptr}};
  frame.update(echo);
  return frame;
}

Json Ended(const v1::Started& started, int64_t created, const Json& echo, const v1::Finished& finished,
           Json items, const v1::Usage& usage) {
  const char* const cut = CutBy(finished.reason());
  Json frame = ResponseFrame(started, created, echo, StatusOf(cut == nullptr));
  if (cut != nullptr) frame["incomplete_details"] = Json::object({{"reason", cut}});
  frame["output"] = std::move(items);
  frame["usage"] = ResponsesUsage(usage);
  AddModeration(finished, &frame);
  AddWarnings(finished, &frame);
  return frame;
}

v1::PartStart TextStart() {
  v1::PartStart start;
  start.set_kind(v1::PartStart::KIND_TEXT);
  return start;
}

}  // namespace

Json ResponsesWhole(const protocol::AnswerFold& answer, const v1::Usage& usage, int64_t created,
                    const ResponsesAnswer& wanted) {
  const v1::AnswerChoice& choice = answer.choices()[0];
  const v1::FinishReason reason = choice.finished().reason();
  Json items = Json::array();
  const auto add = [&](const v1::PartStart& start, const std::string& text, bool complete) {
    items.push_back(ItemOf(start, ItemId(start.kind(), answer.started(), items.size()), text,
                           StatusOf(complete), wanted));
  };
  for (const v1::AnswerPart& part : choice.parts())
    add(protocol::StartOf(part), protocol::TextOf(part), part.complete());
  if (choice.parts().empty() && !choice.text().empty())
    add(TextStart(), choice.text(), CutBy(reason) == nullptr);
  return Ended(answer.started(), created, wanted.echo, choice.finished(), std::move(items), usage);
}

std::string ResponsesEvents::Say(const char* type, Json fields) {
  Json event = {{"type", type}, {"sequence_number", said_++}};
  event.update(fields);
  return Event(type, event);
}

Json ResponsesEvents::At(Json fields) const {
  const size_t index = items_.size();
  Json place = {{"output_index", index}, {"item_id", ItemId(start_.kind(), started_, index)}};
  if (start_.kind() != v1::PartStart::KIND_TOOL_CALL) {
    place[summarised() ? "summary_index" : "content_index"] = 0;
  }
  place.update(fields);
  return place;
}

Json ResponsesEvents::Item(const char* status) const {
  return ItemOf(start_, ItemId(start_.kind(), started_, items_.size()), text_, status, wanted_);
}

Json ResponsesEvents::Part(const std::string& text) const {
  return start_.kind() == v1::PartStart::KIND_THINKING ? ThinkingPart(text, wanted_.summary) : TextPart(text);
}

std::string ResponsesEvents::Begin(const v1::PartStart& start) {
  std::string bytes = Close(false);
  open_ = true;
  start_ = start;
  text_.clear();
  bytes += Say("response.output_item.added", {{"output_index", items_.size()}, {"item", Item(kInProgress)}});
  if (start_.kind() == v1::PartStart::KIND_TOOL_CALL) return bytes;
  return bytes + Say(summarised() ? "response.reasoning_summary_part.added" : "response.content_part.added",
                     At(Json::object({{"part", Part("")}})));
}

std::string ResponsesEvents::More(const std::string& text) {
  if (!open_ || text.empty()) return "";
  text_ += text;
  switch (start_.kind()) {
    case v1::PartStart::KIND_THINKING:
      return Say(summarised() ? "response.reasoning_summary_text.delta" : "response.reasoning_text.delta",
                 At(Json::object({{"delta", text}})));
    case v1::PartStart::KIND_TOOL_CALL:
      return Say("response.function_call_arguments.delta", At(Json::object({{"delta", text}})));
    default:
      return Say("response.output_text.delta", At({{"delta", text}, {"logprobs", Json::array()}}));
  }
}

std::string ResponsesEvents::Close(bool complete) {
  if (!open_) return "";
  open_ = plain_ = false;
  std::string bytes;
  const auto part = [&] {
    bytes += Say(summarised() ? "response.reasoning_summary_part.done" : "response.content_part.done",
                 At(Json::object({{"part", Part(text_)}})));
  };
  switch (start_.kind()) {
    case v1::PartStart::KIND_THINKING:
      bytes = Say(summarised() ? "response.reasoning_summary_text.done" : "response.reasoning_text.done",
                  At(Json::object({{"text", text_}})));
      part();
      break;
    case v1::PartStart::KIND_TOOL_CALL:
      bytes = Say("response.function_call_arguments.done",
                  At({{"name", wanted_.names.Of(start_.name()).name}, {"arguments", text_}}));
      break;
    default:
      bytes = Say("response.output_text.done", At({{"text", text_}, {"logprobs", Json::array()}}));
      part();
  }
  const size_t index = items_.size();
  items_.push_back(Item(StatusOf(complete)));
  return bytes + Say("response.output_item.done", {{"output_index", index}, {"item", items_.back()}});
}

std::string ResponsesEvents::Add(const v1::GenerateResponse& event) {
  if (event.has_started()) {
    started_ = event.started();
    const Json frame = ResponseFrame(started_, created_, wanted_.echo, kInProgress);
    // In this order: each has the next number.
    std::string bytes = Say("response.created", Json::object({{"response", frame}}));
    bytes += Say("response.in_progress", Json::object({{"response", frame}}));
    return bytes;
  }
  if (event.has_finished()) {
    finished_ = event.finished();
    return Close(plain_ && CutBy(finished_.reason()) == nullptr);
  }
  const v1::Delta& delta = event.delta();
  std::string bytes;
  if (delta.parts().empty() && !delta.text().empty()) {
    if (!open_) {
      bytes = Begin(TextStart());
      plain_ = true;
    }
    return bytes + More(delta.text());
  }
  for (const v1::PartEvent& part : delta.parts()) {
    if (part.has_start()) bytes += Begin(part.start());
    bytes += More(part.text());
    bytes += More(part.arguments_json());
    if (part.has_end()) bytes += Close(part.end().complete());
  }
  return bytes;
}

std::string ResponsesEvents::End(const v1::Usage& usage) {
  const char* const type =
      CutBy(finished_.reason()) == nullptr ? "response.completed" : "response.incomplete";
  return Say(type, Json::object({{"response", Ended(started_, created_, wanted_.echo, finished_,
                                                    std::move(items_), usage)}}));
}

std::string ResponsesEvents::Fail(const absl::Status& status) {
  const Json error = OpenAiError(status)["error"];
  Json code = HttpStatusOf(status.code()) == 429 ? "rate_limit_exceeded" : "server_error";
  if (started_.request_id().empty()) {
    return Say("error",
               {{"code", std::move(code)}, {"message", error["message"]}, {"param", error["param"]}});
  }
  Json frame = ResponseFrame(started_, created_, wanted_.echo, "failed");
  frame["error"] = {{"code", std::move(code)}, {"message", error["message"]}};
  frame["output"] = items_;
  return Say("response.failed", Json::object({{"response", std::move(frame)}}));
}

}  // namespace baton::gateway
