// The router names fields as baton.v1 does. Clients of the HTTP APIs read their own names: this turns the one
// into the other, in what an error says. Pure functions; any thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton::gateway {

// The API whose names are used. kTokens: vLLM's /tokenize and /detokenize.
enum class Api { kChat, kCompletion, kResponses, kMessages, kTokens, kModerations };

// The field with which a message begins, and names of other fields behind it, but for those in quotes, which
// may be the client's own words.
std::string InWordsOf(Api api, const std::string& message);
// The same error with another message.
absl::Status InWordsOf(Api api, const absl::Status& status);

}  // namespace baton::gateway
