#include "router/api/classifier_prompt.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <string>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "router/api/conversation.h"
#include "router/moderation/gate.h"

namespace baton::router {
namespace {

// Bound on all texts together, so that no prompt takes the classifier's whole time.
constexpr int64_t kMostRoom = 32 << 10;
// Tokens that a tokenizer may add around a text.
constexpr int64_t kSpareTokens = 16;
constexpr char kProbe[] = "qzx-probe-of-a-text";

absl::Status NotOfFormat(const moderation::ClassifierFormat& format, const std::string& why) {
  return absl::FailedPreconditionError(
      fmt::format("its chat template is not one for classifiers of the format {}: {} (docs/moderation.md)",
                  format.name, why));
}

// Control tokens in a message are text, and a family whose own words hold one wants the token.
absl::Status ProveTurn(const moderation::ClassifierFormat& format, const std::string& turn,
                       const text::Tokenizer& tokenizer) {
  BATON_ASSIGN_OR_RETURN(const auto tokens, tokenizer.Encode(turn, false));
  for (const TokenId token : tokens) {
    if (!tokenizer.IsControl(token)) continue;
    return absl::FailedPreconditionError(
        fmt::format("its tokenizer has a control token for {}, which the format {} sends as text",
                    Quoted(tokenizer.TokenBytes(token)), format.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Prove(const moderation::ClassifierFormat& format,
                              const moderation::Question& question, bool answer,
                              const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer) {
  moderation::Passage passage{.text = kProbe, .answer = answer, .question = answer ? "question" : ""};
  BATON_ASSIGN_OR_RETURN(const auto variables, TemplateVariables(QuestionAbout(question, passage), 1000));
  const auto prompt = chat_template.Render(variables);
  if (!prompt.ok()) return NotOfFormat(format, std::string(prompt.status().message()));
  if (prompt->find(kProbe) == std::string::npos) return NotOfFormat(format, "it leaves the judged text out");
  for (const std::string_view part : format.proof) {
    if (prompt->find(part) == std::string::npos) {
      return NotOfFormat(format, fmt::format("its prompts lack \"{}\"", part));
    }
  }
  BATON_ASSIGN_OR_RETURN(const auto tokens, tokenizer.Encode(*prompt, false));
  return static_cast<int64_t>(tokens.size());
}

}  // namespace

v1::Conversation QuestionAbout(const moderation::Question& question, const moderation::Passage& passage) {
  v1::Conversation conversation;
  if (passage.answer) {
    v1::Message* const asked = conversation.add_messages();
    asked->set_role("user");
    // Templates want a user's turn before an assistant's.
    asked->set_content(passage.question.empty() ? "-" : passage.question);
  }
  v1::Message* const judged = conversation.add_messages();
  judged->set_role(passage.answer ? "assistant" : "user");
  judged->set_content(passage.text);
  const auto worded = [&passage](const std::string& usual, const std::string& answer) {
    return passage.answer && !answer.empty() ? answer : usual;
  };
  if (const std::string turn = worded(question.turn, question.turn_answer); !turn.empty()) {
    v1::Message* const asking = conversation.add_messages();
    asking->set_role("user");
    asking->set_content(turn);
  }
  if (!question.variable.empty()) {
    const std::string value = worded(question.value, question.value_answer);
    google::protobuf::Value parsed;
    BATON_CHECK(google::protobuf::util::JsonStringToMessage(value, &parsed).ok()) << value;
    (*conversation.mutable_template_arguments()->mutable_fields())[std::string(question.variable)] = parsed;
  }
  return conversation;
}

absl::StatusOr<size_t> ProveClassifier(const moderation::ClassifierFormat& format,
                                       const text::ChatTemplate& chat_template,
                                       const text::Tokenizer& tokenizer, int64_t context) {
  int64_t longest = 0;
  for (const moderation::Question& question : format.questions) {
    for (const std::string* const turn : {&question.turn, &question.turn_answer}) {
      BATON_RETURN_IF_ERROR(ProveTurn(format, *turn, tokenizer));
    }
    for (const bool answer : {false, true}) {
      BATON_ASSIGN_OR_RETURN(const int64_t tokens, Prove(format, question, answer, chat_template, tokenizer));
      longest = std::max(longest, tokens);
    }
  }
  BATON_ASSIGN_OR_RETURN(const auto safe, tokenizer.Encode(format.safe.front(), false));
  BATON_ASSIGN_OR_RETURN(const auto unsafe, tokenizer.Encode(format.unsafe.front(), false));
  if (safe.empty() || unsafe.empty() || safe.front() == unsafe.front()) {
    return NotOfFormat(format, "its tokenizer begins both verdicts with one token");
  }
  const int64_t room = context - longest - format.max_tokens - kSpareTokens;
  if (room < static_cast<int64_t>(moderation::Gate::kLeastRoom)) {
    return absl::FailedPreconditionError(
        fmt::format("a context of {} tokens is too small for a classifier of the format {}: its prompts "
                    "take {} without any text",
                    context, format.name, longest));
  }
  return static_cast<size_t>(std::min(room, kMostRoom));
}

std::optional<RecognisedClassifier> RecogniseClassifier(const text::ChatTemplate& chat_template,
                                                        const text::Tokenizer& tokenizer, int64_t context) {
  for (const moderation::ClassifierFormat& format : moderation::ClassifierFormats()) {
    if (format.proof.empty()) continue;
    const auto room = ProveClassifier(format, chat_template, tokenizer, context);
    if (room.ok()) return RecognisedClassifier{.format = &format, .room = *room};
  }
  return std::nullopt;
}

}  // namespace baton::router
