// How a classifier is asked: the conversation that its chat template renders, and the proof, when the model
// is loaded, that the template is of the format's family. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "router/moderation/classifier_format.h"
#include "router/moderation/verdict.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::router {

// The conversation that asks a question about a passage: the message of a user, the answer if it is one, and
// the question's own turn.
v1::Conversation QuestionAbout(const moderation::Question& question, const moderation::Passage& passage);

// Bytes of text that a passage may have, so that every prompt and its verdict fit in `context` tokens: a
// token has a byte at least. FAILED_PRECONDITION: the template does not write such prompts, the tokenizer
// can't tell the verdicts apart, or the context is too small.
absl::StatusOr<size_t> ProveClassifier(const moderation::ClassifierFormat& format,
                                       const text::ChatTemplate& chat_template,
                                       const text::Tokenizer& tokenizer, int64_t context);

struct RecognisedClassifier {
  const moderation::ClassifierFormat* format = nullptr;
  size_t room = 0;  // as ProveClassifier's
};
// The first format whose prompts the template proves; nothing: it is of no family that can be told.
std::optional<RecognisedClassifier> RecogniseClassifier(const text::ChatTemplate& chat_template,
                                                        const text::Tokenizer& tokenizer, int64_t context);

}  // namespace baton::router
