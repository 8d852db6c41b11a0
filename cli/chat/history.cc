#include "cli/chat/history.h"

namespace baton::cli {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

v1::Message MakeMessage(const char* role, std::string_view content) {
  v1::Message message;
  message.set_role(role);
  message.set_content(std::string(content));
  return message;
}

}  // namespace

v1::Conversation History::With(const std::vector<v1::Message>& asked) const {
  v1::Conversation conversation;
  if (!system_.empty()) *conversation.add_messages() = MakeMessage("system", system_);
  for (const v1::Message& message : messages_) *conversation.add_messages() = message;
  for (const v1::Message& message : asked) *conversation.add_messages() = message;
  return conversation;
}

void History::Add(const std::vector<v1::Message>& asked, v1::Message answer) {
  messages_.insert(messages_.end(), asked.begin(), asked.end());
  messages_.push_back(std::move(answer));
  ++turns_;
}

v1::Message UserMessage(std::string_view text) { return MakeMessage("user", text); }

v1::Message ResultMessage(std::string_view call_id, std::string_view text) {
  v1::Message message = MakeMessage("tool", text);
  message.set_tool_call_id(std::string(call_id));
  return message;
}

v1::Message AssistantMessage(std::string_view text, const std::vector<v1::ToolCall>& calls) {
  v1::Message message = MakeMessage("assistant", text);
  *message.mutable_tool_calls() = {calls.begin(), calls.end()};
  return message;
}

Typed ParseTyped(std::string_view line) {
  const std::string_view text = Trim(line);
  if (text.empty()) return {};
  if (text.substr(0, 2) == "//") return {Typed::Kind::kTurn, std::string(text.substr(1))};
  if (text.front() != '/') return {Typed::Kind::kTurn, std::string(text)};
  const size_t space = text.find_first_of(" \t");
  const std::string_view name = text.substr(0, space);
  const std::string_view argument =
      space == std::string_view::npos ? std::string_view() : Trim(text.substr(space));
  if (name == "/reset") return {Typed::Kind::kReset, ""};
  if (name == "/system") return {Typed::Kind::kSystem, std::string(argument)};
  if (name == "/result") return {Typed::Kind::kResult, std::string(argument)};
  if (name == "/stats") return {Typed::Kind::kStats, ""};
  if (name == "/help") return {Typed::Kind::kHelp, ""};
  if (name == "/quit" || name == "/exit") return {Typed::Kind::kQuit, ""};
  return {Typed::Kind::kUnknown, std::string(name)};
}

}  // namespace baton::cli
