#include "router/conversation.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton::router {
namespace {

// Keeps the order of keys: templates print tools and calls, and models know them in one order.
using json = nlohmann::ordered_json;

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
  // A protobuf map has no order that repeats: by name, so that equal requests render equal prompts.
  std::map<std::string_view, const google::protobuf::Value*> fields;
  for (const auto& [name, value] : object.fields()) fields.emplace(name, &value);
  json result = json::object();
  for (const auto& [name, value] : fields) result[std::string(name)] = FromValue(*value);
  return result;
}

// An object that CheckConversation has found to be one.
json FromText(const std::string& text) {
  return text.empty() ? json::object() : json::parse(text, nullptr, false);
}

absl::Status CheckObject(const std::string& text, const std::string& field) {
  constexpr int kMaxDepth = 64;
  if (text.empty()) return absl::OkStatus();
  bool too_deep = false;
  const json parsed = json::parse(
      text,
      [&](int depth, json::parse_event_t, json&) {
        too_deep |= depth > kMaxDepth;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  if (too_deep)
    return absl::InvalidArgumentError(fmt::format("{}: nested more than {} deep", field, kMaxDepth));
  if (!parsed.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not a JSON object", field));
  return absl::OkStatus();
}

json FromMessage(const v1::Message& message) {
  json result = {{"role", message.role()}, {"content", message.content()}};
  if (!message.reasoning_content().empty()) result["reasoning_content"] = message.reasoning_content();
  if (!message.tool_call_id().empty()) result["tool_call_id"] = message.tool_call_id();
  for (const v1::ToolCall& call : message.tool_calls()) {
    json item = json::object();
    if (!call.id().empty()) item["id"] = call.id();
    item["type"] = "function";
    item["function"] = {{"name", call.name()}, {"arguments", FromText(call.arguments_json())}};
    result["tool_calls"].push_back(std::move(item));
  }
  return result;
}

json FromTool(const v1::Tool& tool) {
  json function = {{"name", tool.name()}, {"description", tool.description()}};
  if (!tool.parameters_json().empty()) function["parameters"] = FromText(tool.parameters_json());
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
      BATON_RETURN_IF_ERROR(
          CheckObject(message.tool_calls(j).arguments_json(),
                      fmt::format("conversation.messages[{}].tool_calls[{}].arguments_json", i, j)));
    }
  }
  for (int i = 0; i < conversation.tools_size(); ++i) {
    if (conversation.tools(i).name().empty()) {
      return absl::InvalidArgumentError(fmt::format("conversation.tools[{}].name: empty", i));
    }
    BATON_RETURN_IF_ERROR(CheckObject(conversation.tools(i).parameters_json(),
                                      fmt::format("conversation.tools[{}].parameters_json", i)));
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

json TemplateVariables(const v1::Conversation& conversation) {
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
