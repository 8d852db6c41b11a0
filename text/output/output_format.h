// OutputFormat: how a family of models writes thinking and tool calls into its answers, as plain data. One
// table drives the parser, the test at load (format_choice.h) and the grammar of calls (call_grammar.h). A
// format is chosen by what a model's template renders, never by the model's name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace baton::output {

// How name and arguments of a call are written.
enum class Layout {
  kNone,    // no calls
  kObject,  // {"name": NAME, "arguments": {...}}
  kList,    // a JSON list of such objects
  kNamed,   // NAME, a separator, {...}
  kTagged,  // NAME, then a pair of tags for each argument
  kPython,  // [NAME(KEY=VALUE, ...), ...]
};

// Any marker may be empty: the format lacks it. White space around markers is no part of them.
struct OutputFormat {
  std::string_view name;
  Layout layout = Layout::kNone;

  // Around thinking. Where a template writes the opener itself, the answer begins inside.
  std::string_view think_open;
  std::string_view think_close;
  // The text that a budget of thinking writes in the model's place: the closer, as the model is used to see
  // it.
  std::string_view think_cut;
  // Around all calls of an answer, and around each. Without call_close, a call ends with its JSON.
  std::string_view section_open;
  std::string_view section_close;
  std::string_view call_open;
  std::string_view call_close;
  // kObject, kList: the member that holds the arguments, as models write it (both names are read). And how
  // many letters and digits an id has, behind them or behind id_separator; 0: none is written.
  std::string_view arguments_key = "arguments";
  int id_letters = 0;
  // kNamed: stands before the name and is no part of it: a word, and what separates it.
  std::string_view kind;
  std::string_view kind_separator;
  // kNamed: between name (or id) and arguments; between name and id, if the format has ids there.
  std::string_view separator;
  std::string_view id_separator;
  // kNamed: what stands around the arguments.
  std::string_view fence_open;
  std::string_view fence_close;
  // kTagged: around the name, the key and the value of an argument. Without name_open the name comes first;
  // without value_open the value begins behind the key.
  std::string_view name_open;
  std::string_view name_close;
  std::string_view key_open;
  std::string_view key_close;
  std::string_view value_open;
  std::string_view value_close;
  // kTagged: ends a call whose call_close never comes.
  std::string_view end;
  // Also a call when it opens the answer (or its text after thinking) without a marker: '{' or '['; or, for
  // models that forget call_open, where name_open stands anywhere. 0: no.
  char bare = 0;
  bool bare_name = false;
  // Harmony: the answer is a sequence of channels, and what a channel's header says decides what it is.
  bool channels = false;
  // The header of a call is its id too ("functions.NAME:0").
  bool header_is_id = false;
};

// All formats, those with markers first: what is bare matches most.
std::span<const OutputFormat> Formats();
// Null: no such format. "none" has neither thinking nor calls.
const OutputFormat* FindFormat(std::string_view name);

// The prompt ends with the opener of thinking, which the template wrote: the answer begins inside.
bool OpensThinking(const OutputFormat& format, std::string_view prompt);

// The markers of a format that stand anywhere in an answer, without doubles.
std::vector<std::string_view> Markers(const OutputFormat& format);

}  // namespace baton::output
