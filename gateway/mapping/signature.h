// The opaque member of thinking, which clients send back with it: the signature of a block in Anthropic's
// API, encrypted_content of an item in OpenAI's Responses. Where the text may not come back by itself, this
// member carries it, so that the next prompt has it too. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace baton::gateway {

// `hidden`: the text that the block does not show; empty: it shows all.
std::string SignatureOf(std::string_view hidden);
// The text in a signature; empty: it is another service's, or the block shows the text.
std::string ThinkingIn(std::string_view signature);

}  // namespace baton::gateway
