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
  void Reset() { turns_.clear(); }

  // The conversation with `user` as its newest turn, which is not yet part of the history.
  v1::Conversation With(std::string_view user) const;
  // The turn took place.
  void Add(std::string user, std::string answer);

  size_t turns() const { return turns_.size(); }

 private:
  struct Turn {
    std::string user;
    std::string answer;
  };

  std::string system_;
  std::vector<Turn> turns_;
};

// A line that a person typed: a turn, or a command such as "/system Be brief."
struct Typed {
  enum class Kind { kNothing, kTurn, kReset, kSystem, kStats, kHelp, kQuit, kUnknown };
  Kind kind = Kind::kNothing;
  // The turn; the argument of /system; the unknown command's name.
  std::string text;
};

// "//" at the start is a turn that begins with "/".
Typed ParseTyped(std::string_view line);

}  // namespace baton::cli
