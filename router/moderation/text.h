// The text of a message that a classifier reads. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "baton/v1/generation.pb.h"

namespace baton::router::moderation {

// All text that a client would see of a delta: its parts (text, thinking, names and arguments of tool calls),
// and where it has none, its text.
std::string TextOf(const v1::Delta& delta);

// The greatest offset up to `offset` at which no character of the UTF-8 text is cut.
size_t CharacterStart(std::string_view text, size_t offset);
// The end of the text, of at most so many bytes.
std::string_view Tail(std::string_view text, size_t bytes);

}  // namespace baton::router::moderation
