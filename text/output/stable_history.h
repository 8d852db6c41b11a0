// Checks whether the prompt of a conversation's next turn begins with the prompt and the answer of this turn,
// so that their KV is found again. Many templates write an earlier turn otherwise than the model did: they
// leave its thinking out, or end the generation prompt with an empty thinking block that the history does not
// have. From such a place on every turn is computed again. The template is never changed; operators and
// clients are told.
#pragma once

#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/output/format_choice.h"

namespace baton::output {

// The parts of an answer, "text", "thinking" or "tool_calls", with which the next turn's prompt is another
// text. "text" is an answer of words alone; "thinking" and "tool_calls" are looked at if `choice` has them:
// thinking with the next question, calls with their results. Empty: history is stable. Renders some ten short
// conversations.
std::vector<std::string_view> UnstableHistory(const FormatChoice& choice,
                                              const text::ChatTemplate& chat_template);

}  // namespace baton::output
