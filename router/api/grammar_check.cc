#include "router/api/grammar_check.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "common/base/status.h"
#include "text/output/constraint.h"
#include "text/output/structural_tags.h"

namespace baton::router {
namespace {

absl::StatusOr<std::string> LarkOf(const v1::Constraint& constraint) {
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return output::SchemaGrammar(constraint.json_schema());
    case v1::Constraint::kJsonObject:
      if (!constraint.json_object())
        return absl::InvalidArgumentError("false asks for nothing; leave it out");
      return output::AnyObjectGrammar();
    case v1::Constraint::kRegex:
      return output::RegexGrammar(constraint.regex());
    case v1::Constraint::kChoices: {
      const auto& values = constraint.choices().values();
      return output::ChoiceGrammar(std::vector<std::string>(values.begin(), values.end()));
    }
    case v1::Constraint::kLark:
      return output::LarkGrammar(constraint.lark());
    case v1::Constraint::kStructuralTags: {
      std::vector<output::StructuralTag> tags;
      for (const v1::StructuralTags::Tag& tag : constraint.structural_tags().tags()) {
        tags.push_back({.begin = tag.begin(), .json_schema = tag.json_schema(), .end = tag.end()});
      }
      const auto& triggers = constraint.structural_tags().triggers();
      return output::StructuralGrammar(tags, std::vector<std::string>(triggers.begin(), triggers.end()));
    }
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("empty; set one of its fields");
}

const char* FieldOf(const v1::Constraint& constraint) {
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return "constraint.json_schema";
    case v1::Constraint::kJsonObject:
      return "constraint.json_object";
    case v1::Constraint::kRegex:
      return "constraint.regex";
    case v1::Constraint::kChoices:
      return "constraint.choices";
    case v1::Constraint::kLark:
      return "constraint.lark";
    case v1::Constraint::kStructuralTags:
      return "constraint.structural_tags";
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  return "constraint";
}

}  // namespace

absl::StatusOr<baton::fleet::v1::AnswerGrammar> GrammarCheck::GrammarOf(const v1::Constraint& constraint,
                                                                        Effort effort) const {
  absl::StatusOr<std::string> lark = LarkOf(constraint);
  absl::Status compiles = lark.status();
  if (compiles.ok()) compiles = constraint.has_lark() ? Compiles(*lark, effort) : CompilesMade(*lark, effort);
  if (IsNew(compiles)) return compiles;
  if (!compiles.ok()) {
    return absl::Status(compiles.code(),
                        fmt::format("{}: {}", FieldOf(constraint), std::string(compiles.message())));
  }
  baton::fleet::v1::AnswerGrammar grammar;
  grammar.set_lark(*std::move(lark));
  return grammar;
}

absl::Status GrammarCheck::CompilesMade(const std::string& lark, Effort effort) const {
  const absl::Status compiles = Compiles(lark, effort);
  if (compiles.ok() || IsNew(compiles)) return compiles;
  // "at LINE(COLUMN): MESSAGE 1 | the first line 2 | the second", as far as there are such.
  std::string message(compiles.message());
  message = message.substr(0, message.find(" 1 | "));
  if (message.starts_with("at ")) {
    if (const size_t end = message.find("): "); end != message.npos) message.erase(0, end + 3);
  }
  return absl::Status(compiles.code(), message);
}

absl::Status GrammarCheck::Compiles(const std::string& lark, Effort effort) const {
  BATON_RETURN_IF_ERROR(vocabulary_.status());
  {
    absl::MutexLock lock(&mutex_);
    if (const absl::Status* const known = known_.Find(lark); known != nullptr) return *known;
  }
  if (effort == Effort::kLookUp) return absl::AbortedError("this grammar was never compiled");
  const absl::Status compiles = (*vocabulary_)->Compile(lark).status();
  if (lark.size() > text::GrammarVocabulary::kMaxGrammarBytes) return compiles;  // refused unread
  absl::MutexLock lock(&mutex_);
  known_.Put(lark, compiles);
  return compiles;
}

}  // namespace baton::router
