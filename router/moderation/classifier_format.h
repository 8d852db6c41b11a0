// ClassifierFormat: how a family of classifiers is asked, and how its verdict reads, as data. The prompt is
// written by the model's own chat template; a row of the table says which variables of the template a
// question sets, and which words the model answers with. A new family is a new row (docs/moderation.md).
// Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/generation.pb.h"
#include "router/moderation/verdict.h"

namespace baton::router::moderation {

// One request to the classifier. A verdict takes all of its format's.
struct Question {
  std::string_view category = {};  // that a "yes" means; empty: the verdict names them
  std::string_view variable = {};  // of the template; empty: none
  std::string value = {};          // of that variable, as JSON
  std::string value_answer = {};   // where an answer is judged; empty: likewise
  // A last turn of the user, which asks; empty: the template asks.
  std::string turn = {};
  std::string turn_answer = {};  // where an answer is judged; empty: likewise
};

struct ClassifierFormat {
  std::string_view name;
  std::vector<Question> questions;
  // The verdict's text begins with this, and then comes the word; empty: the word comes first.
  std::string_view before_word;
  // Words in their case; no safe word begins with an unsafe one or the other way round.
  std::vector<std::string_view> safe, unsafe;
  // Where its own categories follow: behind this text, separated by commas, to the end of the line; empty:
  // the next line.
  std::string_view before_categories = {};
  // "S1" and what it stands for; empty: names are taken as they are.
  std::vector<std::pair<std::string_view, std::string_view>> categories = {};
  // Tokens that a verdict takes at most.
  int max_tokens = 1;
  // Texts that this family's template writes into every prompt, by which it is recognised; empty: the name
  // alone says that a model is of this family.
  std::vector<std::string_view> proof = {};
};

const std::vector<ClassifierFormat>& ClassifierFormats();
// Null: there is none of this name.
const ClassifierFormat* FindClassifierFormat(std::string_view name);

// One question's answer: its text, and its tokens with their alternatives.
// INTERNAL: it is no verdict of this format. Flagged says what the text says; the score is
// P(unsafe) / (P(safe) + P(unsafe)) at the token of the word, where the alternatives tell, else 0 or 1.
absl::StatusOr<Verdict> ReadVerdict(const ClassifierFormat& format, const Question& question,
                                    std::string_view text, std::span<const v1::StepLogprobs> steps);

// The verdict on all questions: flagged if any is, with their categories.
Verdict Together(std::span<const Verdict> verdicts);

}  // namespace baton::router::moderation
