// Requests of OpenAI's HTTP API, as requests of baton.v1. A field that is not known is ignored and named; one
// that is known, would change what the answer means, and is not there is INVALID_ARGUMENT. Extra fields are
// those of vLLM's server, by its names. Pure functions, any thread. Source: the API reference of OpenAI
// (chat, completions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// How the answer is wanted.
struct OpenAiAnswer {
  bool stream = false;
  // A last chunk with the usage.
  bool usage = false;
  // With each choice's end the phases of its TTFT, and who wrote it.
  bool timing = false;
  // Prompts that texts of a completion begin with, one for each `n` choices. Empty: none.
  std::vector<std::string> echoes = {};
  // They begin with the prompt's tokens, and their log probabilities do. A prompt that is a text is in
  // `echoes`, too.
  bool prompt_logprobs = false;
  // Log probabilities are shown.
  bool logprobs = false;
  uint32_t n = 1;
  // Members of the body that were ignored.
  std::vector<std::string> ignored;
};

struct OpenAiChat {
  v1::ChatRequest request;
  OpenAiAnswer answer;
};
absl::StatusOr<OpenAiChat> ReadOpenAiChat(const Json& body);

// Prompts of one completion.
inline constexpr size_t kMaxPrompts = 64;

struct OpenAiCompletion {
  // One for each prompt, which differ in nothing else.
  std::vector<v1::GenerateRequest> requests;
  OpenAiAnswer answer;
};
absl::StatusOr<OpenAiCompletion> ReadOpenAiCompletion(const Json& body);

// {"model", "prompt"} or {"model", "messages"}, and {"model", "tokens"}, as vLLM's server has them. ignored:
// is set to the members of the body that were; null: nobody asks.
absl::StatusOr<v1::TokenizeRequest> ReadTokenize(const Json& body,
                                                 std::vector<std::string>* ignored = nullptr);
absl::StatusOr<v1::DetokenizeRequest> ReadDetokenize(const Json& body,
                                                     std::vector<std::string>* ignored = nullptr);

}  // namespace baton::gateway
