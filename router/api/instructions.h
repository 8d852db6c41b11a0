// Where the instructions of a conversation go, the messages of systems and developers: templates have a place
// for one at the beginning, and many refuse any other. A conversation that goes on, with more of them, never
// changes what was before.
#pragma once

#include <optional>

#include "baton/v1/inference.pb.h"
#include "text/output/history_style.h"

namespace baton::router {

// The conversation as its template takes it; nothing: as it is. Instructions before all other messages
// become one system's message, with an empty line between them. Later ones stay where they are if the
// template writes them there. Otherwise they become text in marks, <system>, of a user's or tool's turn: at
// the end of the one before them, or else at the beginning of the one after them, or else one of their own.
// So do the first ones, if the template has no place for a system's message. Cache marks and reusable parts
// stay with their texts. Time is linear in the conversation.
std::optional<v1::Conversation> PlaceInstructions(const v1::Conversation& conversation,
                                                  const output::HistoryStyle& style);

}  // namespace baton::router
