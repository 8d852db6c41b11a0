// Constraint: what a client wants an answer to look like, as the text of one grammar (text/grammar.h). Plain
// functions, any thread. They check what a grammar's compiler would not: that JSON is JSON, how much of it
// there is, and that a schema does not ask the compiler for less than it says.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::output {

inline constexpr int kMaxSchemaProperties = 512;  // of one object
inline constexpr int kMaxChoices = 1000;

// How JSON is written. escapes: what may follow a backslash in a text; empty: what JSON knows.
struct JsonStyle {
  std::string_view escapes;
};

// INVALID_ARGUMENT in all of them: what is wrong, where; `field` of a message is the caller's to name.
absl::StatusOr<std::string> SchemaGrammar(std::string_view schema, const JsonStyle& style = {});
std::string AnyObjectGrammar();
absl::StatusOr<std::string> RegexGrammar(std::string_view regex);
absl::StatusOr<std::string> ChoiceGrammar(std::span<const std::string> choices);
// Returns a client's own grammar as it is.
absl::StatusOr<std::string> LarkGrammar(std::string_view lark);
// The same where it is a part of another grammar, whose names are not its own: "start: " and one rule.
std::string InnerGrammar(std::string_view lark);

}  // namespace baton::output
