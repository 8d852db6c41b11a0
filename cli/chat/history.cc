#include "cli/chat/history.h"

namespace baton::cli {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

void AddMessage(v1::Conversation& conversation, std::string_view role, std::string_view content) {
  v1::Message& message = *conversation.add_messages();
  message.set_role(std::string(role));
  message.set_content(std::string(content));
}

}  // namespace

v1::Conversation History::With(std::string_view user) const {
  v1::Conversation conversation;
  if (!system_.empty()) AddMessage(conversation, "system", system_);
  for (const Turn& turn : turns_) {
    AddMessage(conversation, "user", turn.user);
    AddMessage(conversation, "assistant", turn.answer);
  }
  AddMessage(conversation, "user", user);
  return conversation;
}

void History::Add(std::string user, std::string answer) {
  turns_.push_back({std::move(user), std::move(answer)});
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
  if (name == "/stats") return {Typed::Kind::kStats, ""};
  if (name == "/help") return {Typed::Kind::kHelp, ""};
  if (name == "/quit" || name == "/exit") return {Typed::Kind::kQuit, ""};
  return {Typed::Kind::kUnknown, std::string(name)};
}

}  // namespace baton::cli
