// StructuralTags: answers that are free text but for spans with a structure, as the text of one grammar
// (text/grammar.h). The text is free up to a trigger; from there it is one of the tags that begin with it. A
// plain function, any thread.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton::output {

inline constexpr size_t kMaxStructuralTags = 64;

// A span: `begin`, JSON that validates against `json_schema`, `end`.
struct StructuralTag {
  std::string begin;
  std::string json_schema;
  std::string end;  // may be empty
};

// INVALID_ARGUMENT names the tag or the trigger and what is wrong with it: there are 1 to kMaxStructuralTags
// of both, each tag begins with a trigger and each trigger begins a tag, and no trigger is a part of another.
absl::StatusOr<std::string> StructuralGrammar(std::span<const StructuralTag> tags,
                                              std::span<const std::string> triggers);

}  // namespace baton::output
