// Short conversations that show what a chat template writes.
#pragma once

#include <optional>
#include <string>

#include "common/text/chat_template.h"

namespace baton::output {

inline constexpr char kProbeThought[] = "First the one place, then the other.";
inline constexpr char kProbeWords[] = "Here it is.";

// A user's message.
text::ChatTemplate::Json ProbeQuestion();
// The definition of get_weather, with parameters of all types.
text::ChatTemplate::Json ProbeTools();

// What a template takes a call for.
struct CallStyle {
  // Its id is what stands before its arguments (OutputFormat::header_is_id); else nine letters and digits.
  bool header_ids = false;
  // Its arguments are the text that the model wrote; else an object.
  bool text_arguments = false;
};
// One or two calls of get_weather, the first with all its parameters.
text::ChatTemplate::Json ProbeCalls(int calls, const CallStyle& style = {});
// An assistant's message that makes them.
text::ChatTemplate::Json ProbeCalling(const text::ChatTemplate::Json& calls);

struct Written {
  std::string before;  // the prompt, or the conversation without what asks for an answer
  std::string answer;  // what follows it
};
// What the template writes for `answer`, an assistant's message, after the prompt that asks for it. Nothing
// if it refuses, or writes the conversation before the answer in another way.
std::optional<Written> WrittenAnswer(const text::ChatTemplate& chat_template,
                                     const text::ChatTemplate::Json& answer);
// The prompt for an answer with thinking, in the words in which templates are asked for it. Empty: it
// refuses.
std::string ThinkingPrompt(const text::ChatTemplate& chat_template);
// It refuses a call whose arguments are an object, and takes one whose arguments are text.
bool RefusesObjects(const text::ChatTemplate& chat_template);

}  // namespace baton::output
