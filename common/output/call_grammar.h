// CallGrammar: calls of tools as the text of a grammar (text/grammar.h), made of the same row of the table of
// formats that the parser reads: what obeys the grammar, the parser finds as calls, and their arguments
// validate against the tools' schemas. Markers that are one token are that token; others are spelled. Pure
// functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/output/marker_table.h"

namespace baton::output {

// Whether calls in this format can be constrained: their arguments are JSON, and where a call begins shows in
// the tokens. `thinks`: the model thinks before it answers.
bool CanConstrainCalls(const MarkerTable& markers, bool thinks);
// Of such a format: whether no text can be taken for a call, whatever it is, so that text under a grammar of
// its own may stand in the place of calls.
bool TellsCallsFromText(const MarkerTable& markers);

struct CallShape {
  // After thinking the answer is calls and nothing else; else there may be text, or calls, or both.
  bool required = false;
  // One call at most.
  bool one_call = false;
  // What the answer obeys if it is text: a grammar that begins with the rule "start". Empty: text is free.
  std::string text;
};

// A grammar for the arguments of one tool alone: `schema`, a JSON schema of an object; empty: any object.
// INVALID_ARGUMENT says what is wrong with it.
absl::StatusOr<std::string> ArgumentsGrammar(std::string_view schema);

struct CallableTool {
  std::string name;
  std::string arguments;  // a grammar of ArgumentsGrammar
};

// The whole answer, in a format of which CanConstrainCalls is true. At least one tool.
std::string CallGrammar(const MarkerTable& markers, std::span<const CallableTool> tools,
                        const CallShape& shape);

}  // namespace baton::output
