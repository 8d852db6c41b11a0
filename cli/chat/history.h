// History: the turns of one conversation, as the next request needs them. A turn that failed leaves no trace;
// one that was cut short keeps what was said. One thread; knows nothing of gRPC.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/v1/inference.pb.h"

namespace baton::cli {

class History {
 public:
  // Replaces the system prompt; empty removes it. The turns stay.
  void SetSystem(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  // Forgets the turns, keeps the system prompt.
  void Reset() {
    messages_.clear();
    turns_ = 0;
  }

  // The conversation with `asked` as its newest messages, which are not yet part of the history.
  v1::Conversation With(const std::vector<v1::Message>& asked) const;
  // They were answered.
  void Add(const std::vector<v1::Message>& asked, v1::Message answer);

  // Answers so far.
  size_t turns() const { return turns_; }

 private:
  std::string system_;
  std::vector<v1::Message> messages_;
  size_t turns_ = 0;
};

// A message of a person, a tool's result, and what the model answered.
v1::Message UserMessage(std::string_view text);
v1::Message ResultMessage(std::string_view call_id, std::string_view text);
v1::Message AssistantMessage(std::string_view text, const std::vector<v1::ToolCall>& calls = {});

// A line that a person typed: a turn, or a command such as "/system Be brief."
struct Typed {
  enum class Kind { kNothing, kTurn, kReset, kSystem, kResult, kStats, kHelp, kQuit, kUnknown };
  Kind kind = Kind::kNothing;
  // The turn; the argument of /system or /result; the unknown command's name.
  std::string text;
};

// "//" at the start is a turn that begins with "/".
Typed ParseTyped(std::string_view line);

}  // namespace baton::cli
