#include "router/conversation.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace baton::router {
namespace {

using nlohmann::json;

json FromStruct(const google::protobuf::Struct& object);

json FromValue(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue: {
      // A Struct knows only doubles; whole ones were integers when the caller wrote them.
      constexpr double kExact = 9007199254740992.0;  // 2^53
      const double number = value.number_value();
      if (std::trunc(number) == number && std::abs(number) <= kExact) return static_cast<int64_t>(number);
      return number;
    }
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kBoolValue:
      return value.bool_value();
    case google::protobuf::Value::kStructValue:
      return FromStruct(value.struct_value());
    case google::protobuf::Value::kListValue: {
      json list = json::array();
      for (const auto& element : value.list_value().values()) list.push_back(FromValue(element));
      return list;
    }
    default:
      return nullptr;
  }
}

json FromStruct(const google::protobuf::Struct& object) {
  json result = json::object();
  for (const auto& [name, value] : object.fields()) result[name] = FromValue(value);
  return result;
}

json FromMessage(const v1::Message& message) {
  json result = {{"role", message.role()}, {"content", message.content()}};
  if (!message.reasoning_content().empty()) result["reasoning_content"] = message.reasoning_content();
  if (!message.tool_call_id().empty()) result["tool_call_id"] = message.tool_call_id();
  for (const v1::ToolCall& call : message.tool_calls()) {
    json item = {{"type", "function"},
                 {"function", {{"name", call.name()}, {"arguments", FromStruct(call.arguments())}}}};
    if (!call.id().empty()) item["id"] = call.id();
    result["tool_calls"].push_back(std::move(item));
  }
  return result;
}

json FromTool(const v1::Tool& tool) {
  json function = {{"name", tool.name()}, {"description", tool.description()}};
  if (tool.has_parameters()) function["parameters"] = FromStruct(tool.parameters());
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

absl::Status CheckConversation(const v1::Conversation& conversation) {
  if (conversation.messages().empty()) {
    return absl::InvalidArgumentError(
        "conversation.messages: empty; a conversation needs at least one message");
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::Message& message = conversation.messages(i);
    if (message.role().empty()) {
      return absl::InvalidArgumentError(
          fmt::format("conversation.messages[{}].role: empty; use system, user, assistant or tool", i));
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

nlohmann::json TemplateVariables(const v1::Conversation& conversation) {
  json variables = FromStruct(conversation.template_arguments());
  variables["messages"] = json::array();
  for (const v1::Message& message : conversation.messages())
    variables["messages"].push_back(FromMessage(message));
  if (!conversation.tools().empty()) {
    variables["tools"] = json::array();
    for (const v1::Tool& tool : conversation.tools()) variables["tools"].push_back(FromTool(tool));
  }
  if (conversation.has_enable_thinking()) variables["enable_thinking"] = conversation.enable_thinking();
  variables["add_generation_prompt"] = true;
  return variables;
}

}  // namespace baton::router
