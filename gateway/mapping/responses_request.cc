#include "gateway/mapping/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "gateway/mapping/cache_mark.h"
#include "gateway/mapping/constraint.h"
#include "gateway/mapping/max_tokens.h"
#include "gateway/mapping/moderation.h"
#include "gateway/mapping/overflow.h"
#include "gateway/mapping/responses_tools.h"
#include "gateway/mapping/shared_fields.h"
#include "gateway/mapping/signature.h"

namespace baton::gateway {
namespace {

// The text of a value that is no list of parts. One that has a type, as a picture, is no text.
std::string TextOrStandIn(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() || !value.contains("type")) return value.dump();
  return StandIn(value["type"].is_string() ? value["type"].get<std::string>() : "");
}

// A text, or a list of parts that are texts. stand_in: of tools' results, where any JSON is its text, and
// parts that are none are left out, with a text in their place.
absl::StatusOr<std::string> TextsOf(JsonObject& item, std::string_view name, bool stand_in = false) {
  const Json* const content = item.Find(name);  // null: absent
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    if (stand_in) return TextOrStandIn(*content);
    return item.Wrong(name, "neither a text nor a list of parts");
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    if (const Json& part = (*content)[i]; stand_in && !(part.is_object() && part.contains("type"))) {
      text += TextOrStandIn(part);
      continue;
    }
    BATON_ASSIGN_OR_RETURN(JsonObject part,
                           item.Inside((*content)[i], fmt::format("{}[{}]", item.Path(name), i)));
    part.Skip({"annotations", "logprobs"});
    BATON_ASSIGN_OR_RETURN(const auto type, part.Text("type"));
    constexpr std::string_view kTexts[] = {"input_text", "output_text", "text", "reasoning_text",
                                           "summary_text"};
    const bool refusal = type == "refusal";
    if (!refusal && std::ranges::find(kTexts, type.value_or("")) == std::end(kTexts)) {
      if (stand_in && type.has_value()) {
        text += StandIn(*type);
        continue;
      }
      return part.Wrong(
          "type",
          fmt::format("\"{}\" is not served here; send parts of the type \"input_text\"", type.value_or("")));
    }
    BATON_ASSIGN_OR_RETURN(const auto piece, part.Text(refusal ? "refusal" : "text"));
    if (!piece.has_value()) return part.Wrong("text", "absent");
    text += *piece;
  }
  return text;
}

// The items in which another service says what its tools did, or keeps something for itself.
bool IsOfService(std::string_view type) {
  constexpr std::string_view kOthers[] = {
      "mcp_list_tools",     "mcp_approval_request", "mcp_approval_response",
      "tool_search_output", "compaction",           "compaction_summary"};
  return type.ends_with("_call") || std::ranges::find(kOthers, type) != std::end(kOthers);
}

// Items of one turn of the assistant (its thinking, its texts, its calls) are one message.
class Items {
 public:
  Items(const JsonObject& body, v1::Conversation& conversation) : body_(body), conversation_(conversation) {}

  absl::Status Read(const Json& json, const std::string& where) {
    BATON_ASSIGN_OR_RETURN(JsonObject item, body_.Inside(json, where));
    // An answer's items are sent back as they came.
    item.Skip({"id", "status"});
    BATON_ASSIGN_OR_RETURN(const auto given, item.Text("type"));
    // A message need not say that it is one.
    const std::string type = given.value_or("message");
    if (type == "message") return Message(item);
    if (type == "reasoning") return Thinking(item);
    if (type == "function_call") return Call(item);
    if (type == "function_call_output") return Result(item);
    if (type == "item_reference") {
      return item.Wrong("type", "nothing is kept here to refer to: send the item itself");
    }
    if (type.ends_with("_call") && item.Find("call_id") != nullptr) return OtherCall(item, type);
    const bool answers_call = item.Find("call_id") != nullptr;
    if (type.ends_with("_call_output") || (type == "tool_search_output" && answers_call)) return Result(item);
    if (IsOfService(type)) {
      // A conversation begins with no answer.
      if (!conversation_.messages().empty()) *Turn().mutable_content() += StandIn(type);
      return absl::OkStatus();
    }
    return item.Wrong("type", fmt::format("items of the type \"{}\" are not served here", type));
  }

 private:
  v1::Message& Turn() {
    if (turn_ == nullptr) {
      turn_ = conversation_.add_messages();
      turn_->set_role("assistant");
    }
    return *turn_;
  }

  absl::Status Message(JsonObject& item) {
    BATON_ASSIGN_OR_RETURN(const auto role, item.Text("role"));
    if (!role.has_value()) return item.Wrong("role", "absent");
    BATON_ASSIGN_OR_RETURN(const std::string text, TextsOf(item, "content"));
    if (role == "assistant") {
      *Turn().mutable_content() += text;
      return absl::OkStatus();
    }
    turn_ = nullptr;
    v1::Message& made = *conversation_.add_messages();
    // Newer models call the system prompt so.
    made.set_role(role == "developer" ? "system" : *role);
    made.set_content(text);
    return absl::OkStatus();
  }

  // The text of the thinking itself, or what stands for it. What another service has encrypted says nothing
  // here.
  absl::Status Thinking(JsonObject& item) {
    BATON_ASSIGN_OR_RETURN(std::string text, TextsOf(item, "content"));
    BATON_ASSIGN_OR_RETURN(const std::string summary, TextsOf(item, "summary"));
    BATON_ASSIGN_OR_RETURN(const auto encrypted, item.Text("encrypted_content"));
    if (text.empty()) text = ThinkingIn(encrypted.value_or(""));
    *Turn().mutable_reasoning_content() += text.empty() ? summary : text;
    return absl::OkStatus();
  }

  absl::Status Call(JsonObject& item) {
    BATON_ASSIGN_OR_RETURN(const auto id, item.Text("call_id"));
    BATON_ASSIGN_OR_RETURN(const auto name, item.Text("name"));
    BATON_ASSIGN_OR_RETURN(const auto space, item.Text("namespace"));
    BATON_ASSIGN_OR_RETURN(const auto arguments, item.Text("arguments"));
    if (!id.has_value()) return item.Wrong("call_id", "absent");
    v1::ToolCall& made = *Turn().add_tool_calls();
    made.set_id(*id);
    made.set_name(NameInModel(space.value_or(""), name.value_or("")));
    made.set_arguments_json(arguments.value_or(""));
    return absl::OkStatus();
  }

  // A call of a tool of another type, which the client has run: a shell's command, a patch, a text. The model
  // reads it as one of a function with the item's members as arguments.
  absl::Status OtherCall(JsonObject& item, const std::string& type) {
    BATON_ASSIGN_OR_RETURN(const auto id, item.Text("call_id"));
    BATON_ASSIGN_OR_RETURN(const auto name, item.Text("name"));
    Json arguments = Json::object();
    for (const char* const member : {"input", "action", "operation", "arguments"}) {
      if (const Json* const value = item.Find(member); value != nullptr) arguments[member] = *value;
    }
    v1::ToolCall& made = *Turn().add_tool_calls();
    made.set_id(id.value_or(""));
    made.set_name(name.value_or(type.substr(0, type.rfind("_call"))));
    made.set_arguments_json(arguments.dump());
    return absl::OkStatus();
  }

  absl::Status Result(JsonObject& item) {
    BATON_ASSIGN_OR_RETURN(auto id, item.Text("call_id"));
    BATON_ASSIGN_OR_RETURN(const auto type, item.Text("type"));
    if (!id.has_value() && type == "local_shell_call_output") {
      // Its id is the call's.
      BATON_ASSIGN_OR_RETURN(id, item.Text("id"));
    }
    if (!id.has_value()) return item.Wrong("call_id", "absent");
    BATON_ASSIGN_OR_RETURN(const std::string text, TextsOf(item, "output", /*stand_in=*/true));
    turn_ = nullptr;
    v1::Message& made = *conversation_.add_messages();
    made.set_role("tool");
    made.set_tool_call_id(*id);
    made.set_content(text);
    return absl::OkStatus();
  }

  const JsonObject& body_;
  v1::Conversation& conversation_;
  v1::Message* turn_ = nullptr;  // null: none is under way
};

absl::Status ReadInput(JsonObject& body, v1::Conversation* conversation) {
  BATON_ASSIGN_OR_RETURN(const auto instructions, body.Text("instructions"));
  if (instructions.has_value()) {
    v1::Message& system = *conversation->add_messages();
    system.set_role("system");
    system.set_content(*instructions);
  }
  const Json* const input = body.Find("input");  // null: absent
  if (input == nullptr) return body.Wrong("input", "absent");
  if (input->is_string()) {
    v1::Message& user = *conversation->add_messages();
    user.set_role("user");
    user.set_content(input->get<std::string>());
    return absl::OkStatus();
  }
  if (!input->is_array()) return body.Wrong("input", "neither a text nor a list of items");
  if (input->size() > kMaxMessages) {
    return body.Wrong("input", fmt::format("{} items; at most {} are taken", input->size(), kMaxMessages));
  }
  Items items(body, *conversation);
  for (size_t i = 0; i < input->size(); ++i) {
    BATON_RETURN_IF_ERROR(items.Read((*input)[i], fmt::format("input[{}]", i)));
  }
  return absl::OkStatus();
}

absl::Status ReadTextFormat(JsonObject& body, v1::ChatRequest* request) {
  const Json* const text = body.Find("text");  // null: absent
  if (text == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*text, "text"));
  fields.Skip({"verbosity"});
  const Json* const format = fields.Find("format");  // null: absent
  if (format == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject wanted, fields.Inside(*format, "text.format"));
  wanted.Skip({"name", "description", "strict"});
  BATON_ASSIGN_OR_RETURN(const auto type, wanted.Text("type"));
  if (type == "json_object") {
    request->mutable_constraint()->set_json_object(true);
  } else if (type == "json_schema") {
    const Json* const schema = wanted.Find("schema");  // null: absent
    if (schema == nullptr) return wanted.Wrong("schema", "absent");
    request->mutable_constraint()->set_json_schema(schema->dump());
  } else if (type != "text") {
    return wanted.Wrong("type", "not one of text, json_object and json_schema");
  }
  return absl::OkStatus();
}

absl::Status ReadReasoning(JsonObject& body, v1::ChatRequest* request, bool* summary) {
  const Json* const reasoning = body.Find("reasoning");  // null: absent
  if (reasoning != nullptr) {
    BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*reasoning, "reasoning"));
    for (const char* const name : {"summary", "generate_summary"}) {  // the second is the older name
      BATON_ASSIGN_OR_RETURN(const auto wanted, fields.Text(name));
      if (!wanted.has_value()) continue;
      if (wanted != "auto" && wanted != "concise" && wanted != "detailed" && wanted != "none") {
        return fields.Wrong(name, "not one of auto, concise, detailed and none");
      }
      *summary |= wanted != "none";
    }
    BATON_RETURN_IF_ERROR(ReadEffort(fields, "effort", request));
  }
  BATON_RETURN_IF_ERROR(ReadThinkingExtras(body, request));
  return ReadTemplateArguments(body, request);
}

// Refuses fields that need an answer to be kept, now or before.
absl::Status RefuseMemory(JsonObject& body) {
  BATON_ASSIGN_OR_RETURN(const auto store, body.Flag("store"));
  if (store.value_or(false))
    return body.Wrong("store", "no answer is kept here: send false, or leave it out");
  for (const char* const name : {"previous_response_id", "conversation"}) {
    if (body.Find(name) != nullptr) {
      return body.Wrong(name, "no answer is kept here: send the whole conversation as input");
    }
  }
  return RefuseForeign(body, {"background", "prompt", "context_management"});
}

absl::Status ReadIncluded(JsonObject& body, bool* encrypted) {
  BATON_ASSIGN_OR_RETURN(const Json* const include, body.List("include"));
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    // The rest is about tools of the server, of which there are none.
    *encrypted |= (*include)[i] == "reasoning.encrypted_content";
    if ((*include)[i] == "message.output_text.logprobs") {
      return body.Wrong("include", "log probabilities are served by /v1/chat/completions alone");
    }
  }
  BATON_ASSIGN_OR_RETURN(const auto top, body.Whole("top_logprobs", 0, 20));
  if (top.value_or(0) > 0) {
    return body.Wrong("top_logprobs", "log probabilities are served by /v1/chat/completions alone");
  }
  return absl::OkStatus();
}

Json SettingsEcho(JsonObject& body) {
  const auto given = [&body](const char* name, Json otherwise) {
    const Json* const value = body.Find(name);  // null: absent
    return value == nullptr ? std::move(otherwise) : *value;
  };
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", given("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"prompt_cache_key", given("prompt_cache_key", nullptr)},
          {"reasoning", given("reasoning", Json::object({{"effort", nullptr}, {"summary", nullptr}}))},
          {"store", false},
          {"temperature", given("temperature", nullptr)},
          {"text", given("text", Json::object({{"format", Json::object({{"type", "text"}})}}))},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", Json::array())},
          {"top_p", given("top_p", nullptr)},
          {"truncation", given("truncation", "disabled")}};
}

}  // namespace

absl::StatusOr<ResponsesRequest> ReadResponses(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  ResponsesRequest responses;
  v1::ChatRequest& request = responses.request;
  ResponsesAnswer& answer = responses.answer;
  BATON_RETURN_IF_ERROR(RefuseMemory(body));
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  BATON_RETURN_IF_ERROR(ReadInput(body, request.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadResponsesTools(body, &request, &answer.names));
  BATON_RETURN_IF_ERROR(ReadReasoning(body, &request, &answer.summary));
  BATON_RETURN_IF_ERROR(ReadTextFormat(body, &request));
  BATON_RETURN_IF_ERROR(ReadConstraint(body, &request));
  BATON_RETURN_IF_ERROR(ReadSampling(body, request.mutable_sampling()));
  BATON_RETURN_IF_ERROR(RefuseUnserved(body));
  BATON_RETURN_IF_ERROR(RefuseForms(body));
  BATON_RETURN_IF_ERROR(ReadIncluded(body, &answer.encrypted));
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("max_output_tokens", 0, kMaxTokens),
                                      [&](int64_t n) { SetMaxTokens(n, &request); }));
  v1::RequestOptions options;
  BATON_RETURN_IF_ERROR(Copy<std::string>(body.Text("prompt_cache_key"),
                                          [&](const std::string& key) { options.set_session_id(key); }));
  BATON_RETURN_IF_ERROR(ReadSpeculation(body, &options));
  BATON_RETURN_IF_ERROR(ReadModeration(body, &options));
  *request.mutable_options() = std::move(options);
  BATON_ASSIGN_OR_RETURN(const auto truncation, body.Text("truncation"));
  const bool automatic = truncation == "auto";
  if (!automatic && truncation.value_or("disabled") != "disabled") {
    return body.Wrong("truncation", "neither \"auto\" nor \"disabled\"");
  }
  // A client of this API asks for more than there is room for, as a rule.
  BATON_RETURN_IF_ERROR(
      ReadOverflow(body, automatic ? v1::Overflow::MODE_DROP_OLDEST : v1::Overflow::MODE_CLAMP_OUTPUT,
                   request.mutable_overflow()));
  BATON_ASSIGN_OR_RETURN(const auto stream, body.Flag("stream"));
  answer.stream = stream.value_or(false);
  BATON_RETURN_IF_ERROR(ReadServiceTier(body, {"auto", "default"}));
  // About OpenAI's own service, or without tools of the server without a meaning.
  body.Skip({"user", "safety_identifier", "stream_options", "max_tool_calls", "prompt_cache_retention",
             "background", "metadata", "client_metadata"});
  answer.echo = SettingsEcho(body);
  answer.ignored = body.Ignored();
  return responses;
}

}  // namespace baton::gateway
