#include "router/api/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "nlohmann/json.hpp"

namespace baton::router {
namespace {

// Keeps the order of keys: templates print tools and calls, and models know them in one order.
using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// Builds the variables of one conversation, and counts what they are made of.
class Builder {
 public:
  Builder(int64_t max_parts, const output::CallStyle& calls, bool raw_arguments)
      : max_parts_(max_parts), calls_(calls), raw_arguments_(raw_arguments), left_(max_parts) {}

  absl::StatusOr<Json> Build(const v1::Conversation& conversation) {
    BATON_ASSIGN_OR_RETURN(Json variables, FromStruct(conversation.template_arguments()));
    Json messages = Json::array();
    for (int i = 0; i < conversation.messages_size(); ++i) {
      BATON_ASSIGN_OR_RETURN(Json message, FromMessage(conversation.messages(i)));
      messages.push_back(std::move(message));
    }
    json::Append(&variables, "messages", std::move(messages));
    Json tools = Json::array();
    for (int i = 0; i < conversation.tools_size(); ++i) {
      if (conversation.tools(i).deferred()) continue;
      BATON_ASSIGN_OR_RETURN(Json tool,
                             FromTool(conversation.tools(i), fmt::format("conversation.tools[{}]", i)));
      tools.push_back(std::move(tool));
    }
    if (!tools.empty()) json::Append(&variables, "tools", std::move(tools));
    json::Append(&variables, "add_generation_prompt", !conversation.continue_last());
    return variables;
  }

 private:
  absl::Status TooMany() const {
    return absl::InvalidArgumentError(
        fmt::format("conversation: more than {} messages, tools, calls and JSON values together; the model's "
                    "context has no room for what they say",
                    max_parts_));
  }

  absl::Status Count() { return --left_ < 0 ? TooMany() : absl::OkStatus(); }

  absl::StatusOr<Json> FromValue(const google::protobuf::Value& value) {
    BATON_RETURN_IF_ERROR(Count());
    switch (value.kind_case()) {
      case google::protobuf::Value::kNumberValue: {
        // A Struct knows only doubles; whole ones were integers when the caller wrote them.
        constexpr double kExact = 9007199254740992.0;  // 2^53
        const double number = value.number_value();
        if (std::trunc(number) == number && std::abs(number) <= kExact) {
          return Json(static_cast<int64_t>(number));
        }
        return Json(number);
      }
      case google::protobuf::Value::kStringValue:
        return Json(value.string_value());
      case google::protobuf::Value::kBoolValue:
        return Json(value.bool_value());
      case google::protobuf::Value::kStructValue:
        return FromStruct(value.struct_value());
      case google::protobuf::Value::kListValue: {
        Json list = Json::array();
        for (const auto& element : value.list_value().values()) {
          BATON_ASSIGN_OR_RETURN(Json item, FromValue(element));
          list.push_back(std::move(item));
        }
        return list;
      }
      default:
        return Json(nullptr);
    }
  }

  // Recursion ends where protobuf's parser does, 100 levels down.
  absl::StatusOr<Json> FromStruct(const google::protobuf::Struct& object) {
    if (object.fields_size() > left_) return TooMany();
    // A protobuf map has no order that repeats: by name, so that equal requests render equal prompts.
    std::map<std::string_view, const google::protobuf::Value*> fields;
    for (const auto& [name, value] : object.fields()) fields.emplace(name, &value);
    Json result = Json::object();
    for (const auto& [name, value] : fields) {
      BATON_ASSIGN_OR_RETURN(Json member, FromValue(*value));
      json::Append(&result, std::string(name), std::move(member));
    }
    return result;
  }

  // Empty text is an empty object. RESOURCE_EXHAUSTED: it has too many values.
  absl::StatusOr<Json> ObjectIn(const std::string& text) {
    if (text.empty()) return Json::object();
    int64_t values = 0;
    absl::StatusOr<Json> parsed = json::Parse<Json>(text, {.values = left_}, &values);
    if (values > left_) return absl::ResourceExhaustedError("");
    left_ -= values;
    if (parsed.ok() && !parsed->is_object()) return absl::InvalidArgumentError("not a JSON object");
    return parsed;
  }

  absl::StatusOr<Json> ParametersOf(const v1::Tool& tool, const std::string& field) {
    absl::StatusOr<Json> parsed = ObjectIn(tool.parameters_json());
    if (absl::IsResourceExhausted(parsed.status())) return TooMany();
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}.parameters_json: {}", field, std::string(parsed.status().message())));
    }
    return parsed;
  }

  // A model may have written what is no object, or was cut. The conversation goes on with it.
  absl::StatusOr<Json> ArgumentsOf(const v1::ToolCall& call) {
    absl::StatusOr<Json> parsed = ObjectIn(call.arguments_json());
    if (absl::IsResourceExhausted(parsed.status())) return TooMany();
    if (calls_.text_arguments) return Json(call.arguments_json().empty() ? "{}" : call.arguments_json());
    if (parsed.ok()) return parsed;
    if (raw_arguments_) return Json(call.arguments_json());
    return Json{{"arguments", call.arguments_json()}};
  }

  absl::StatusOr<Json> FromMessage(const v1::Message& message) {
    BATON_RETURN_IF_ERROR(Count());
    Json result = {{"role", message.role()}, {"content", ContentOf(message)}};
    if (!message.reasoning_content().empty()) result["reasoning_content"] = message.reasoning_content();
    if (!message.tool_call_id().empty()) {
      result["tool_call_id"] = message.tool_call_id();
      const auto called = called_.find(message.tool_call_id());
      if (called != called_.end()) result["name"] = called->second;
    }
    if (calls_.none_content && message.tool_calls_size() > 0 && ContentOf(message).empty()) {
      result["content"] = nullptr;
    }
    for (const v1::ToolCall& call : message.tool_calls()) {
      BATON_RETURN_IF_ERROR(Count());
      BATON_ASSIGN_OR_RETURN(Json arguments, ArgumentsOf(call));
      Json item = Json::object();
      if (!call.id().empty()) {
        item["id"] = call.id();
        called_.insert_or_assign(call.id(), call.name());
      }
      item["type"] = "function";
      item["function"] = {{"name", call.name()}, {"arguments", std::move(arguments)}};
      result["tool_calls"].push_back(std::move(item));
    }
    return result;
  }

  absl::StatusOr<Json> FromTool(const v1::Tool& tool, const std::string& field) {
    BATON_RETURN_IF_ERROR(Count());
    Json function = {{"name", tool.name()}, {"description", tool.description()}};
    if (!tool.parameters_json().empty()) {
      BATON_ASSIGN_OR_RETURN(function["parameters"], ParametersOf(tool, field));
    }
    return Json{{"type", "function"}, {"function", std::move(function)}};
  }

  const int64_t max_parts_;
  const output::CallStyle calls_;
  const bool raw_arguments_;
  std::map<std::string_view, std::string_view> called_;  // names of calls so far, by id
  int64_t left_;
};

}  // namespace

std::string ContentOf(const v1::Message& message) {
  std::string content = message.content();
  for (const v1::ContentPart& part : message.parts()) content += part.text();
  return content;
}

bool IsSystem(const v1::Message& message) {
  return message.role() == "system" || message.role() == "developer";
}

absl::Status CheckConversation(const v1::Conversation& conversation) {
  if (conversation.messages().empty()) {
    return absl::InvalidArgumentError(
        "conversation.messages: empty; a conversation needs at least one message");
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::Message& message = conversation.messages(i);
    if (std::ranges::find(kRoles, message.role()) == kRoles.end()) {
      return absl::InvalidArgumentError(fmt::format(
          "conversation.messages[{}].role: {} is none; use \"{}\"", i,
          message.role().empty() ? "empty" : Quoted(message.role()), fmt::join(kRoles, "\", \"")));
    }
    for (int j = 0; j < message.parts_size(); ++j) {
      if (message.parts(j).content_case() == v1::ContentPart::CONTENT_NOT_SET) {
        return absl::InvalidArgumentError(
            fmt::format("conversation.messages[{}].parts[{}].content: missing; set text", i, j));
      }
    }
    for (int j = 0; j < message.tool_calls_size(); ++j) {
      if (message.tool_calls(j).name().empty()) {
        return absl::InvalidArgumentError(
            fmt::format("conversation.messages[{}].tool_calls[{}].name: empty", i, j));
      }
    }
  }
  if (const v1::Message& last = conversation.messages(conversation.messages_size() - 1);
      conversation.continue_last() && (last.role() != "assistant" || !last.tool_calls().empty())) {
    return absl::InvalidArgumentError(
        "conversation.continue_last: the last message is no assistant's, or has calls: leave this out, or "
        "let "
        "the conversation end with the text that is to be continued");
  }
  for (int i = 0; i < conversation.tools_size(); ++i) {
    if (conversation.tools(i).name().empty()) {
      return absl::InvalidArgumentError(fmt::format("conversation.tools[{}].name: empty", i));
    }
  }
  for (const auto& [name, value] : conversation.template_arguments().fields()) {
    if (name == "messages" || name == "tools" || name == "add_generation_prompt" ||
        name == "enable_thinking") {
      return absl::InvalidArgumentError(
          fmt::format("conversation.template_arguments: \"{}\" has a field of its own", name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> TemplateVariables(const v1::Conversation& conversation, int64_t max_parts,
                                       const output::CallStyle& calls, bool raw_arguments) {
  return Builder(max_parts, calls, raw_arguments).Build(conversation);
}

void AddThinking(const v1::Thinking& thinking, Json* variables) {
  if (thinking.has_enabled()) {
    for (const char* const name : {"enable_thinking", "thinking"}) {
      if (!variables->contains(name)) json::Append(variables, name, thinking.enabled());
    }
  }
  if (!thinking.effort().empty()) json::Append(variables, "reasoning_effort", thinking.effort());
}

}  // namespace baton::router
