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
// One or two calls of get_weather, the first with all its parameters.
text::ChatTemplate::Json ProbeCalls(int calls);
// What the template writes for `answer`, an assistant's message, after the prompt that asks for it. Nothing
// if it refuses, or writes the conversation before the answer in another way.
std::optional<std::string> WrittenAnswer(const text::ChatTemplate& chat_template,
                                         const text::ChatTemplate::Json& answer);

}  // namespace baton::output
