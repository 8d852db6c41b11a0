// CallGrammar: answers with calls of tools as the text of a grammar (text/grammar.h), made of the same row of
// the table of formats that the parser reads: what obeys the grammar, the parser finds as calls, and their
// arguments validate against the tools' schemas. Markers that are one token are that token; others are
// spelled. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/output/marker_table.h"

namespace baton::output {

// True if answers in this format can be constrained: where a call begins, and a channel, shows in the tokens.
// `thinks`: the model thinks before it answers.
bool CanConstrainCalls(const MarkerTable& markers, bool thinks);
// True if no text in such a format can be taken for a call, so that text under a grammar of its own may stand
// in the place of calls.
bool TellsCallsFromText(const MarkerTable& markers);

struct CallShape {
  // After thinking the answer is calls and nothing else; else there may be text, or calls, or both.
  bool required = false;
  // One call at most.
  bool one_call = false;
  // A grammar for the answer if it is text, which begins with the rule "start". Empty: text is free.
  std::string text;
};

// A grammar for the arguments of one tool alone, as the format writes them: `schema`, a JSON schema of an
// object; empty: any object. `tool`: its place among the tools. INVALID_ARGUMENT says what is wrong with it.
absl::StatusOr<std::string> ArgumentsGrammar(const MarkerTable& markers, std::string_view schema, int tool);
// INVALID_ARGUMENT: the format can't write a call of this name.
absl::Status CheckToolName(const OutputFormat& format, std::string_view name);

struct CallableTool {
  std::string name;
  std::string arguments;  // a grammar of ArgumentsGrammar
};

// The whole answer, in a format of which CanConstrainCalls is true. At least one tool.
std::string CallGrammar(const MarkerTable& markers, std::span<const CallableTool> tools,
                        const CallShape& shape);
// An answer without calls that obeys `text`, a grammar that begins with the rule "start": itself, or behind
// thinking in a channel. Of a format of which CanConstrainCalls is true if it has channels.
std::string TextGrammar(const MarkerTable& markers, const std::string& text);

}  // namespace baton::output
