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
  Builder(int64_t max_parts, const output::CallStyle& calls)
      : max_parts_(max_parts), calls_(calls), left_(max_parts) {}

  absl::StatusOr<Json> Build(const v1::Conversation& conversation) {
    BATON_ASSIGN_OR_RETURN(Json variables, FromStruct(conversation.template_arguments()));
    Json messages = Json::array();
    for (int i = 0; i < conversation.messages_size(); ++i) {
      BATON_ASSIGN_OR_RETURN(
          Json message, FromMessage(conversation.messages(i), fmt::format("conversation.messages[{}]", i)));
      messages.push_back(std::move(message));
    }
    json::Append(&variables, "messages", std::move(messages));
    if (!conversation.tools().empty()) {
      Json tools = Json::array();
      for (int i = 0; i < conversation.tools_size(); ++i) {
        BATON_ASSIGN_OR_RETURN(Json tool,
                               FromTool(conversation.tools(i), fmt::format("conversation.tools[{}]", i)));
        tools.push_back(std::move(tool));
      }
      json::Append(&variables, "tools", std::move(tools));
    }
    json::Append(&variables, "add_generation_prompt", true);
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

  // Empty text is an empty object.
  absl::StatusOr<Json> FromText(const std::string& text, const std::string& field) {
    if (text.empty()) return Json::object();
    int64_t values = 0;
    absl::StatusOr<Json> parsed = json::Parse<Json>(text, {.values = left_}, &values);
    if (values > left_) return TooMany();
    left_ -= values;
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", field, std::string(parsed.status().message())));
    }
    if (!parsed->is_object()) return absl::InvalidArgumentError(fmt::format("{}: not a JSON object", field));
    return parsed;
  }

  absl::StatusOr<Json> FromMessage(const v1::Message& message, const std::string& field) {
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
    for (int i = 0; i < message.tool_calls_size(); ++i) {
      const v1::ToolCall& call = message.tool_calls(i);
      BATON_RETURN_IF_ERROR(Count());
      BATON_ASSIGN_OR_RETURN(
          Json arguments,
          FromText(call.arguments_json(), fmt::format("{}.tool_calls[{}].arguments_json", field, i)));
      if (calls_.text_arguments) arguments = call.arguments_json().empty() ? "{}" : call.arguments_json();
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
      BATON_ASSIGN_OR_RETURN(function["parameters"],
                             FromText(tool.parameters_json(), field + ".parameters_json"));
    }
    return Json{{"type", "function"}, {"function", std::move(function)}};
  }

  const int64_t max_parts_;
  const output::CallStyle calls_;
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
                                       const output::CallStyle& calls) {
  return Builder(max_parts, calls).Build(conversation);
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
