// LoadDraftEngine: the engine of a draft model beside that of the model it drafts for: the same backend, its
// own weights and its own small pool of KV. Before the worker takes work, any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace baton::decode_service {

// OK if each token stands for the same bytes in both: otherwise one's drafts are another text to the other.
// INVALID_ARGUMENT names the first token that differs.
absl::Status CheckSameTokens(const text::Tokenizer& drafts, const text::Tokenizer& model);

// target: as the model's own engine was loaded, which has `tokenizer`. Its cores are used in turns with it.
// The pool holds as many tokens as the model's, but is at most a quarter of its bytes. Errors name
// --draft-model and say what to do.
absl::StatusOr<std::unique_ptr<engine::Engine>> LoadDraftEngine(const std::string& folder,
                                                                const engine::EngineOptions& target,
                                                                engine::Engine& model,
                                                                const text::Tokenizer& tokenizer);

}  // namespace baton::decode_service
