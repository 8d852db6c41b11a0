#include "gateway/mapping/anthropic_request.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/base/status.h"
#include "gateway/mapping/anthropic_tools.h"
#include "gateway/mapping/cache_mark.h"
#include "gateway/mapping/constraint.h"
#include "gateway/mapping/max_tokens.h"
#include "gateway/mapping/moderation.h"
#include "gateway/mapping/overflow.h"
#include "gateway/mapping/shared_fields.h"
#include "gateway/mapping/signature.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kBillingLine = "x-anthropic-billing-header";
// The words before a tool's result that is an error.
constexpr const char* kFailed = "Error: ";

// A text of the system prompt without its billing line.
std::string WithoutBillingLine(std::string text) {
  if (!text.starts_with(kBillingLine)) return text;
  const size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(end + 1);
}

// The texts of a member, which is one or has blocks of them; nothing: it is neither.
absl::StatusOr<std::optional<std::string>> TextsIn(JsonObject& of, std::string_view name) {
  const Json* const content = of.Find(name);  // null: absent
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return std::nullopt;
  std::string texts;
  for (size_t i = 0; i < content->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject block,
                           of.Inside((*content)[i], fmt::format("{}[{}]", of.Path(name), i)));
    BATON_ASSIGN_OR_RETURN(const auto type, block.Text("type"));
    BATON_ASSIGN_OR_RETURN(const auto text, block.Text("text"));
    texts += type == "text" ? text.value_or("") : StandIn(type.value_or(""));
  }
  return texts;
}

// The text of a document that is one; nothing: it is a file.
absl::StatusOr<std::optional<std::string>> TextOfDocument(JsonObject& block) {
  const Json* const source = block.Find("source");  // null: absent
  if (source == nullptr) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(JsonObject fields, block.Inside(*source, block.Path("source")));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type == "content") return TextsIn(fields, "content");
  if (type != "text") {
    fields.Skip({"media_type", "data", "url", "file_id"});
    return std::nullopt;
  }
  fields.Skip({"media_type"});
  return fields.Text("data");
}

// The text of a block of any type, or a text that stands for it. A reference to a tool is its description.
absl::StatusOr<std::string> TextOrStandIn(JsonObject& block, std::string_view type,
                                          ToolReferences& references) {
  std::optional<std::string> text;
  if (type == "document") {
    BATON_ASSIGN_OR_RETURN(text, TextOfDocument(block));
  } else if (type == "search_result") {
    BATON_ASSIGN_OR_RETURN(text, TextsIn(block, "content"));
  } else if (type == "tool_reference") {
    BATON_ASSIGN_OR_RETURN(const auto name, block.Text("tool_name"));
    text = references.Text(name.value_or(""));
  }
  return text.value_or(StandIn(type));
}

enum class TextsOf { kSystem, kSystemWithoutBilling, kResult };

// Texts: a string, or blocks of the type "text"; a tool's result may have others. `of`: the object that they
// are in.
absl::Status AddTexts(const JsonObject& of, const Json& content, const std::string& where, TextsOf what,
                      ToolReferences& references, v1::Message* message) {
  const auto shown = [what](std::string text) {
    return what == TextsOf::kSystemWithoutBilling ? WithoutBillingLine(std::move(text)) : text;
  };
  if (content.is_string()) {
    AddText(shown(content.get<std::string>()), std::nullopt, message);
    return absl::OkStatus();
  }
  if (!content.is_array()) return absl::InvalidArgumentError(where + ": neither a text nor a list of blocks");
  for (size_t i = 0; i < content.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject block, of.Inside(content[i], fmt::format("{}[{}]", where, i)));
    BATON_ASSIGN_OR_RETURN(const auto type, block.Text("type"));
    BATON_ASSIGN_OR_RETURN(const auto mark, ReadMark(block));
    BATON_ASSIGN_OR_RETURN(const bool reusable, ReadReusable(block));
    if (type == "text") {
      BATON_ASSIGN_OR_RETURN(const auto text, block.Text("text"));
      const std::string left = shown(text.value_or(""));
      if (left.empty() && !text.value_or("").empty()) continue;
      AddText(left, mark, message, reusable);
    } else if (what == TextsOf::kResult && type.has_value()) {
      if (type == "tool_reference") message->set_describes_tool(true);
      BATON_ASSIGN_OR_RETURN(const std::string text, TextOrStandIn(block, *type, references));
      AddText(text, mark, message, reusable);
    } else {
      return block.Wrong("type", fmt::format("\"{}\" is not served here", type.value_or("")));
    }
  }
  return absl::OkStatus();
}

bool IsEmpty(const v1::Message& message) {
  return message.content().empty() && message.parts().empty() && message.tool_calls().empty() &&
         message.reasoning_content().empty();
}

// One message may hold results of tools, which are messages of their own here.
absl::Status ReadMessage(const JsonObject& body, const Json& json, const std::string& where,
                         ToolReferences& references, v1::Conversation* conversation) {
  BATON_ASSIGN_OR_RETURN(JsonObject message, body.Inside(json, where));
  BATON_ASSIGN_OR_RETURN(const auto role, message.Text("role"));
  if (role != "user" && role != "assistant" && role != "system")
    return message.Wrong("role", "neither \"user\" nor \"assistant\"");
  const Json* const content = message.Find("content");  // null: absent
  if (content == nullptr) return message.Wrong("content", "absent");
  v1::Message made;
  made.set_role(*role);
  if (content->is_string()) {
    made.set_content(content->get<std::string>());
    *conversation->add_messages() = std::move(made);
    return absl::OkStatus();
  }
  if (!content->is_array()) return message.Wrong("content", "neither a text nor a list of blocks");
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", message.Path("content"), i);
    BATON_ASSIGN_OR_RETURN(JsonObject block, message.Inside((*content)[i], place));
    BATON_ASSIGN_OR_RETURN(const auto type, block.Text("type"));
    BATON_ASSIGN_OR_RETURN(const auto mark, ReadMark(block));
    if (type == "text") {
      BATON_ASSIGN_OR_RETURN(const auto text, block.Text("text"));
      BATON_ASSIGN_OR_RETURN(const bool reusable, ReadReusable(block));
      AddText(text.value_or(""), mark, &made, reusable);
    } else if (type == "thinking") {
      BATON_ASSIGN_OR_RETURN(const auto thinking, block.Text("thinking"));
      BATON_ASSIGN_OR_RETURN(const auto signature, block.Text("signature"));
      const std::string shown = thinking.value_or("");
      made.mutable_reasoning_content()->append(shown.empty() ? ThinkingIn(signature.value_or("")) : shown);
    } else if (type == "redacted_thinking") {
      block.Skip({"data"});  // it was never readable
    } else if (type == "tool_use") {
      v1::ToolCall& call = *made.add_tool_calls();
      BATON_ASSIGN_OR_RETURN(const auto id, block.Text("id"));
      BATON_ASSIGN_OR_RETURN(const auto name, block.Text("name"));
      call.set_id(id.value_or(""));
      call.set_name(name.value_or(""));
      if (const Json* const input = block.Find("input"); input != nullptr) {  // null: absent
        call.set_arguments_json(input->dump());
      }
      if (mark.has_value()) *made.mutable_cache() = *mark;
    } else if (type == "tool_result") {
      if (!IsEmpty(made)) {
        *conversation->add_messages() = std::exchange(made, {});
        made.set_role(*role);
      }
      v1::Message& result = *conversation->add_messages();
      result.set_role("tool");
      BATON_ASSIGN_OR_RETURN(const auto id, block.Text("tool_use_id"));
      result.set_tool_call_id(id.value_or(""));
      BATON_ASSIGN_OR_RETURN(const auto failed, block.Flag("is_error"));
      // Templates have no place for it.
      if (failed.value_or(false)) AddText(kFailed, std::nullopt, &result);
      if (const Json* const told = block.Find("content"); told != nullptr) {  // null: absent
        BATON_RETURN_IF_ERROR(
            AddTexts(block, *told, place + ".content", TextsOf::kResult, references, &result));
      }
      if (mark.has_value()) *result.mutable_cache() = *mark;
    } else if (role == "assistant" && type.has_value()) {
      // An answer of another service may have made calls by itself for example.
      AddText(StandIn(*type), mark, &made);
    } else if (type == "document") {
      BATON_ASSIGN_OR_RETURN(const auto text, TextOfDocument(block));
      if (!text.has_value()) {
        return block.Wrong("source", "only documents of the type \"text\" are served here");
      }
      AddText(*text, mark, &made);
    } else {
      return block.Wrong("type", fmt::format("\"{}\" is not served here", type.value_or("")));
    }
  }
  if (!IsEmpty(made) || content->empty()) *conversation->add_messages() = std::move(made);
  return absl::OkStatus();
}

// hidden: is set where the client wants blocks of thinking without their text.
absl::Status ReadAnthropicThinking(JsonObject& body, v1::Thinking* thinking, bool* hidden) {
  const Json* const json = body.Find("thinking");  // null: absent
  if (json == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*json, "thinking"));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return fields.Wrong("type", "not one of enabled, disabled and adaptive");
  }
  thinking->set_enabled(type != "disabled");  // adaptive: as much as the model likes
  BATON_ASSIGN_OR_RETURN(const auto budget, fields.Whole("budget_tokens", 1, kMaxTokens));
  if (budget.has_value()) thinking->set_budget_tokens(static_cast<uint32_t>(*budget));
  BATON_ASSIGN_OR_RETURN(const auto display, fields.Text("display"));
  *hidden = display == "omitted";
  if (display.has_value() && !*hidden && display != "summarized" && display != "updates") {
    return fields.Wrong("display", "not one of summarized, updates and omitted");
  }
  return absl::OkStatus();
}

// {"type": "json_schema", "schema"}.
absl::Status ReadOutputFormat(const JsonObject& of, const Json& json, const std::string& where,
                              v1::ChatRequest* request) {
  BATON_ASSIGN_OR_RETURN(JsonObject format, of.Inside(json, where));
  BATON_ASSIGN_OR_RETURN(const auto type, format.Text("type"));
  if (type != "json_schema") return format.Wrong("type", "not \"json_schema\"");
  const Json* const schema = format.Find("schema");  // null: absent
  if (schema == nullptr) return format.Wrong("schema", "absent");
  format.Skip({"name"});
  if (request->has_constraint()) {
    return absl::InvalidArgumentError(where + ": output_config.format says what the answer looks like, too");
  }
  request->mutable_constraint()->set_json_schema(schema->dump());
  return absl::OkStatus();
}

// Reads the answer's format, and the effort of thinking; `output_format` is the older form of the first.
absl::Status ReadOutputConfig(JsonObject& body, v1::ChatRequest* request) {
  if (const Json* const json = body.Find("output_config"); json != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject config, body.Inside(*json, "output_config"));
    if (const Json* const format = config.Find("format"); format != nullptr) {  // null: absent
      BATON_RETURN_IF_ERROR(ReadOutputFormat(config, *format, "output_config.format", request));
    }
    BATON_ASSIGN_OR_RETURN(const auto effort, config.Text("effort"));
    if (effort.has_value()) request->mutable_thinking()->set_effort(*effort);
  }
  const Json* const format = body.Find("output_format");  // null: absent
  if (format == nullptr) return absl::OkStatus();
  return ReadOutputFormat(body, *format, "output_format", request);
}

absl::Status ReadConversation(JsonObject& body, const AnthropicRules& rules, v1::ChatRequest* request,
                              bool* hidden) {
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request->set_model(model.value_or(""));
  // Messages may refer to tools.
  BATON_RETURN_IF_ERROR(ReadAnthropicTools(body, request->mutable_conversation()));
  ToolReferences references(request->conversation());
  if (const Json* const system = body.Find("system"); system != nullptr) {  // null: absent
    v1::Message message;
    message.set_role("system");
    BATON_RETURN_IF_ERROR(AddTexts(
        body, *system, "system",
        rules.drop_billing_header ? TextsOf::kSystemWithoutBilling : TextsOf::kSystem, references, &message));
    if (!IsEmpty(message)) *request->mutable_conversation()->add_messages() = std::move(message);
  }
  BATON_ASSIGN_OR_RETURN(const Json* const messages, body.List("messages", kMaxMessages));
  if (messages == nullptr) return body.Wrong("messages", "absent");
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_RETURN_IF_ERROR(ReadMessage(body, (*messages)[i], fmt::format("messages[{}]", i), references,
                                      request->mutable_conversation()));
  }
  // An answer goes on with the text that the client begins it with.
  if (v1::Conversation& whole = *request->mutable_conversation(); !whole.messages().empty()) {
    const v1::Message& last = whole.messages(whole.messages_size() - 1);
    whole.set_continue_last(last.role() == "assistant" && last.tool_calls().empty() &&
                            !(last.content().empty() && last.parts().empty()));
  }
  BATON_RETURN_IF_ERROR(ReadAnthropicToolChoice(body, request));
  BATON_RETURN_IF_ERROR(ReadContextEdits(body, request));
  return ReadAnthropicThinking(body, request->mutable_thinking(), hidden);
}

}  // namespace

absl::StatusOr<AnthropicMessages> ReadAnthropicMessages(const Json& json, const AnthropicRules& rules) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  AnthropicMessages made;
  v1::ChatRequest& request = made.request;
  BATON_RETURN_IF_ERROR(ReadConversation(body, rules, &request, &made.answer.hide_thinking));
  BATON_RETURN_IF_ERROR(ReadOutputConfig(body, &request));
  BATON_RETURN_IF_ERROR(ReadConstraint(body, &request));
  BATON_ASSIGN_OR_RETURN(const auto max_tokens, body.Whole("max_tokens", 0, kMaxTokens));
  if (!max_tokens.has_value()) return body.Wrong("max_tokens", "absent");
  SetMaxTokens(*max_tokens, &request);
  BATON_RETURN_IF_ERROR(ReadOverflow(body, v1::Overflow::MODE_CLAMP_OUTPUT, request.mutable_overflow()));
  BATON_ASSIGN_OR_RETURN(const auto temperature, body.Number("temperature"));
  BATON_ASSIGN_OR_RETURN(const auto top_p, body.Number("top_p"));
  BATON_ASSIGN_OR_RETURN(const auto top_k, body.Whole("top_k", 0, kMaxTokens));
  if (temperature.has_value()) request.mutable_sampling()->set_temperature(static_cast<float>(*temperature));
  if (top_p.has_value()) request.mutable_sampling()->set_top_p(TopP(*top_p));
  if (top_k.has_value()) request.mutable_sampling()->set_top_k(static_cast<int32_t>(*top_k));
  BATON_ASSIGN_OR_RETURN(const Json* const stops, body.List("stop_sequences"));
  for (size_t i = 0; stops != nullptr && i < stops->size(); ++i) {
    if (!(*stops)[i].is_string()) return body.Wrong("stop_sequences", "not a list of texts");
    if ((*stops)[i] != "") request.mutable_stop()->add_stop((*stops)[i].get<std::string>());
  }
  BATON_ASSIGN_OR_RETURN(const auto mark, ReadMark(body));
  v1::RequestOptions options;
  if (mark.has_value()) *options.mutable_cache() = *mark;
  BATON_RETURN_IF_ERROR(ReadSpeculation(body, &options));
  BATON_RETURN_IF_ERROR(ReadModeration(body, &options));
  if (options.ByteSizeLong() > 0) *request.mutable_options() = std::move(options);
  BATON_ASSIGN_OR_RETURN(const auto stream, body.Flag("stream"));
  made.answer.stream = stream.value_or(false);
  made.answer.tell_edits = body.Find("context_management") != nullptr;
  BATON_RETURN_IF_ERROR(RefuseForeign(body, {"mcp_servers", "container"}));
  BATON_RETURN_IF_ERROR(RefuseUnserved(body));
  BATON_RETURN_IF_ERROR(ReadServiceTier(body, {"auto", "standard_only"}));
  body.Skip({"metadata"});
  made.ignored = body.Ignored();
  return made;
}

absl::StatusOr<v1::CountTokensRequest> ReadAnthropicCount(const Json& json, const AnthropicRules& rules,
                                                          std::vector<std::string>* ignored) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::CountTokensRequest made;
  bool hidden = false;
  BATON_RETURN_IF_ERROR(ReadConversation(body, rules, made.mutable_chat(), &hidden));
  // The effort alone of these is a part of a prompt.
  BATON_RETURN_IF_ERROR(ReadOutputConfig(body, made.mutable_chat()));
  made.mutable_chat()->clear_constraint();
  BATON_RETURN_IF_ERROR(
      ReadOverflow(body, v1::Overflow::MODE_CLAMP_OUTPUT, made.mutable_chat()->mutable_overflow()));
  body.Skip({"max_tokens", "metadata", "moderation", "stream"});
  if (ignored != nullptr) *ignored = body.Ignored();
  return made;
}

}  // namespace baton::gateway
