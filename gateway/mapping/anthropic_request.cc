#include "gateway/mapping/anthropic_request.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "common/base/status.h"

namespace baton::gateway {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

// A line in the system prompt of Claude Code that differs with every request, so that no prefix would ever be
// found in the cache. It says nothing to a model.
constexpr std::string_view kBillingLine = "x-anthropic-billing-header";

// {"type": "ephemeral", "ttl": "5m" or "1h"}; absent: no mark.
absl::StatusOr<std::optional<v1::CacheMark>> Mark(JsonObject& block) {
  const Json* const control = block.Find("cache_control");  // null: absent
  if (control == nullptr) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(JsonObject fields, JsonObject::Of(*control, block.Path("cache_control")));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type != "ephemeral") return fields.Wrong("type", "not \"ephemeral\"");
  BATON_ASSIGN_OR_RETURN(const auto ttl, fields.Text("ttl"));
  v1::CacheMark mark;
  if (ttl == "1h") {
    mark.set_ttl(v1::CACHE_TTL_1H);
  } else if (ttl.has_value() && ttl != "5m") {
    return fields.Wrong("ttl", "neither \"5m\" nor \"1h\"");
  } else {
    mark.set_ttl(v1::CACHE_TTL_5M);
  }
  return mark;
}

// Appends a text to a message, as its content as long as there are no marks in it.
void AddText(const std::string& text, const std::optional<v1::CacheMark>& mark, v1::Message* message) {
  if (message->parts().empty() && !mark.has_value()) {
    message->mutable_content()->append(text);
    return;
  }
  if (!message->content().empty()) {
    message->add_parts()->set_text(message->content());
    message->clear_content();
  }
  v1::ContentPart& part = *message->add_parts();
  part.set_text(text);
  if (mark.has_value()) *part.mutable_cache() = *mark;
}

// Texts: a string, or blocks of the type "text".
absl::Status AddTexts(const Json& content, const std::string& where, v1::Message* message) {
  if (content.is_string()) {
    AddText(content.get<std::string>(), std::nullopt, message);
    return absl::OkStatus();
  }
  if (!content.is_array()) return absl::InvalidArgumentError(where + ": neither a text nor a list of blocks");
  for (size_t i = 0; i < content.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject block, JsonObject::Of(content[i], fmt::format("{}[{}]", where, i)));
    BATON_ASSIGN_OR_RETURN(const auto type, block.Text("type"));
    if (type != "text")
      return block.Wrong("type", fmt::format("\"{}\" is not served here", type.value_or("")));
    BATON_ASSIGN_OR_RETURN(const auto text, block.Text("text"));
    BATON_ASSIGN_OR_RETURN(const auto mark, Mark(block));
    if (text.value_or("").starts_with(kBillingLine)) continue;
    AddText(text.value_or(""), mark, message);
  }
  return absl::OkStatus();
}

bool IsEmpty(const v1::Message& message) {
  return message.content().empty() && message.parts().empty() && message.tool_calls().empty() &&
         message.reasoning_content().empty();
}

// One message may hold results of tools, which are messages of their own here.
absl::Status ReadMessage(const Json& json, const std::string& where, v1::Conversation* conversation) {
  BATON_ASSIGN_OR_RETURN(JsonObject message, JsonObject::Of(json, where));
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
    BATON_ASSIGN_OR_RETURN(JsonObject block, JsonObject::Of((*content)[i], place));
    BATON_ASSIGN_OR_RETURN(const auto type, block.Text("type"));
    BATON_ASSIGN_OR_RETURN(const auto mark, Mark(block));
    if (type == "text") {
      BATON_ASSIGN_OR_RETURN(const auto text, block.Text("text"));
      AddText(text.value_or(""), mark, &made);
    } else if (type == "thinking") {
      BATON_ASSIGN_OR_RETURN(const auto thinking, block.Text("thinking"));
      made.mutable_reasoning_content()->append(thinking.value_or(""));
    } else if (type == "redacted_thinking") {
      // It was never readable.
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
      if (const Json* const told = block.Find("content"); told != nullptr) {  // null: absent
        BATON_RETURN_IF_ERROR(AddTexts(*told, place + ".content", &result));
      }
      if (mark.has_value()) *result.mutable_cache() = *mark;
    } else {
      return block.Wrong("type", fmt::format("\"{}\" is not served here", type.value_or("")));
    }
  }
  if (!IsEmpty(made) || content->empty()) *conversation->add_messages() = std::move(made);
  return absl::OkStatus();
}

absl::Status ReadTools(JsonObject& body, v1::Conversation* conversation) {
  BATON_ASSIGN_OR_RETURN(const Json* const tools, body.List("tools"));
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject tool, JsonObject::Of((*tools)[i], fmt::format("tools[{}]", i)));
    BATON_ASSIGN_OR_RETURN(const auto type, tool.Text("type"));
    if (type.value_or("custom") != "custom") {
      return tool.Wrong("type",
                        fmt::format("\"{}\": tools that run on the server are not served here", *type));
    }
    v1::Tool& made = *conversation->add_tools();
    BATON_ASSIGN_OR_RETURN(const auto name, tool.Text("name"));
    BATON_ASSIGN_OR_RETURN(const auto description, tool.Text("description"));
    BATON_ASSIGN_OR_RETURN(const auto strict, tool.Flag("strict"));
    BATON_ASSIGN_OR_RETURN(const auto mark, Mark(tool));
    made.set_name(name.value_or(""));
    made.set_description(description.value_or(""));
    made.set_strict(strict.value_or(false));
    if (const Json* const schema = tool.Find("input_schema"); schema != nullptr) {  // null: absent
      made.set_parameters_json(schema->dump());
    }
    // The template writes tools as one piece: a mark at any of them is one at their end.
    if (mark.has_value()) *conversation->mutable_tools_cache() = *mark;
  }
  return absl::OkStatus();
}

absl::Status ReadToolChoice(JsonObject& body, v1::ChatRequest* request) {
  const Json* const json = body.Find("tool_choice");  // null: absent
  if (json == nullptr || request->conversation().tools().empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject choice, JsonObject::Of(*json, "tool_choice"));
  BATON_ASSIGN_OR_RETURN(const auto type, choice.Text("type"));
  BATON_ASSIGN_OR_RETURN(const auto single, choice.Flag("disable_parallel_tool_use"));
  v1::ToolChoice& made = *request->mutable_tool_choice();
  if (single.value_or(false)) made.set_parallel(false);
  if (type == "auto") {
    made.set_mode(v1::ToolChoice::MODE_AUTO);
  } else if (type == "none") {
    made.set_mode(v1::ToolChoice::MODE_NONE);
  } else if (type == "any") {
    made.set_mode(v1::ToolChoice::MODE_REQUIRED);
  } else if (type == "tool") {
    BATON_ASSIGN_OR_RETURN(const auto name, choice.Text("name"));
    made.set_mode(v1::ToolChoice::MODE_REQUIRED);
    made.add_names(name.value_or(""));
  } else {
    return choice.Wrong("type", "not one of auto, any, tool and none");
  }
  return absl::OkStatus();
}

absl::Status ReadThinking(JsonObject& body, v1::Thinking* thinking) {
  const Json* const json = body.Find("thinking");  // null: absent
  if (json == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, JsonObject::Of(*json, "thinking"));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return fields.Wrong("type", "not one of enabled, disabled and adaptive");
  }
  if (type != "adaptive") thinking->set_enabled(type == "enabled");
  BATON_ASSIGN_OR_RETURN(const auto budget, fields.Whole("budget_tokens", 1, kMaxTokens));
  if (budget.has_value()) thinking->set_budget_tokens(static_cast<uint32_t>(*budget));
  return absl::OkStatus();
}

absl::Status ReadConversation(JsonObject& body, v1::ChatRequest* request) {
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request->set_model(model.value_or(""));
  if (const Json* const system = body.Find("system"); system != nullptr) {  // null: absent
    v1::Message message;
    message.set_role("system");
    BATON_RETURN_IF_ERROR(AddTexts(*system, "system", &message));
    if (!IsEmpty(message)) *request->mutable_conversation()->add_messages() = std::move(message);
  }
  BATON_ASSIGN_OR_RETURN(const Json* const messages, body.List("messages"));
  if (messages == nullptr) return body.Wrong("messages", "absent");
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_RETURN_IF_ERROR(
        ReadMessage((*messages)[i], fmt::format("messages[{}]", i), request->mutable_conversation()));
  }
  BATON_RETURN_IF_ERROR(ReadTools(body, request->mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadToolChoice(body, request));
  return ReadThinking(body, request->mutable_thinking());
}

}  // namespace

absl::StatusOr<AnthropicMessages> ReadAnthropicMessages(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  AnthropicMessages made;
  v1::ChatRequest& request = made.request;
  BATON_RETURN_IF_ERROR(ReadConversation(body, &request));
  BATON_ASSIGN_OR_RETURN(const auto max_tokens, body.Whole("max_tokens", 0, kMaxTokens));
  if (!max_tokens.has_value()) return body.Wrong("max_tokens", "absent");
  request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(*max_tokens));
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_CLAMP_OUTPUT);
  BATON_ASSIGN_OR_RETURN(const auto temperature, body.Number("temperature"));
  BATON_ASSIGN_OR_RETURN(const auto top_p, body.Number("top_p"));
  BATON_ASSIGN_OR_RETURN(const auto top_k, body.Whole("top_k", 0, kMaxTokens));
  if (temperature.has_value()) request.mutable_sampling()->set_temperature(static_cast<float>(*temperature));
  if (top_p.has_value()) request.mutable_sampling()->set_top_p(static_cast<float>(*top_p));
  if (top_k.has_value()) request.mutable_sampling()->set_top_k(static_cast<int32_t>(*top_k));
  BATON_ASSIGN_OR_RETURN(const Json* const stops, body.List("stop_sequences"));
  for (size_t i = 0; stops != nullptr && i < stops->size(); ++i) {
    if (!(*stops)[i].is_string()) return body.Wrong("stop_sequences", "not a list of texts");
    request.mutable_stop()->add_stop((*stops)[i].get<std::string>());
  }
  BATON_ASSIGN_OR_RETURN(const auto mark, Mark(body));
  if (mark.has_value()) *request.mutable_options()->mutable_cache() = *mark;
  BATON_ASSIGN_OR_RETURN(const auto stream, body.Flag("stream"));
  made.stream = stream.value_or(false);
  for (const char* const name : {"mcp_servers", "container"}) {
    if (body.Find(name) != nullptr) return body.Wrong(name, "not served here");
  }
  body.Skip({"metadata", "service_tier"});
  made.ignored = body.Ignored();
  return made;
}

absl::StatusOr<v1::TokenizeRequest> ReadAnthropicCount(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::ChatRequest request;
  BATON_RETURN_IF_ERROR(ReadConversation(body, &request));
  v1::TokenizeRequest made;
  made.set_model(request.model());
  *made.mutable_conversation() = std::move(*request.mutable_conversation());
  if (request.thinking().has_enabled()) {
    made.mutable_conversation()->set_enable_thinking(request.thinking().enabled());
  }
  return made;
}

}  // namespace baton::gateway
