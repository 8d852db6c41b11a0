// Short conversations that show what a chat template writes.
#pragma once

#include <optional>
#include <string>

#include "text/chat_template.h"

namespace baton::output {

inline constexpr char kProbeThought[] = "First the one place, then the other.";
inline constexpr char kProbeWords[] = "Here it is.";

// A user's message.
text::ChatTemplate::Json ProbeQuestion();
// The definition of get_weather, with parameters of all types.
text::ChatTemplate::Json ProbeTools();

// How earlier calls go into a template.
struct CallStyle {
  // The arguments are the text that the model wrote; else an object.
  bool text_arguments = false;
  // The content of a message that has calls alone is none; else an empty text.
  bool none_content = false;
  friend bool operator==(const CallStyle&, const CallStyle&) = default;
};
// All of them, the usual one first.
inline constexpr CallStyle kCallStyles[] = {{false, false}, {true, false}, {false, true}, {true, true}};

// A probe may vary more of its calls than that.
struct ProbeKind {
  CallStyle style = {};
  // An id is what stands before the arguments (OutputFormat::header_is_id); else nine letters and digits.
  bool header_ids = false;
  // The arguments are texts and numbers alone: some templates write others as Python does.
  bool plain = false;
};
// One or two calls of get_weather, the first with all its parameters.
text::ChatTemplate::Json ProbeCalls(int calls, const ProbeKind& kind = {});
// An assistant's message that makes them.
text::ChatTemplate::Json ProbeCalling(int calls, const ProbeKind& kind = {});

struct Written {
  std::string before;  // the prompt, or the conversation without what asks for an answer
  std::string answer;  // what follows it
};
// The template's text for `answer`, an assistant's message, after the prompt that asks for it. Nothing if it
// refuses, or writes the conversation before the answer in another way.
std::optional<Written> WrittenAnswer(const text::ChatTemplate& chat_template,
                                     const text::ChatTemplate::Json& answer);
// The prompt for an answer with thinking, in the words in which templates are asked for it. Empty: it
// refuses.
std::string ThinkingPrompt(const text::ChatTemplate& chat_template);
// The first style in which the template takes a call and writes its arguments; the usual one if there is
// none.
CallStyle StyleOf(const text::ChatTemplate& chat_template);

}  // namespace baton::output
