// The signature of a block of thinking, which is opaque to clients of Anthropic's API: they send it back with
// the block. Where a client has the text hidden, the signature carries it, so that the next prompt has it
// too. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace baton::gateway {

// `hidden`: the text that the block does not show; empty: it shows all.
std::string SignatureOf(std::string_view hidden);
// The text in a signature; empty: it is another service's, or the block shows the text.
std::string ThinkingIn(std::string_view signature);

}  // namespace baton::gateway
