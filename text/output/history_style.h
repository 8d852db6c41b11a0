// How a chat template takes what the history of an agent's conversation has and many templates refuse.
#pragma once

#include "text/chat_template.h"

namespace baton::output {

struct HistoryStyle {
  // A system's message that a conversation begins with is written.
  bool system = false;
  // One that comes later is written, too, and nothing before it changes.
  bool late_system = false;
  // Arguments of a call that are a text are written as they are, without quotes.
  bool raw_arguments = false;
  friend bool operator==(const HistoryStyle&, const HistoryStyle&) = default;
};

// By what the template makes of some ten short conversations.
HistoryStyle HistoryStyleOf(const text::ChatTemplate& chat_template);

}  // namespace baton::output
