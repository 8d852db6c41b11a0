// Parser: an answer's tokens become parts, in order: TEXT, THINKING and TOOL_CALL. Where it stands follows
// from the tokens alone, so a replay of them (a migration) and any grouping give the same parts. A call
// leaves as it is written (CallStream), or where the format does not allow that, when it is whole. What does
// not parse, or is cut by the end of the answer, leaves as a call that is not complete if its arguments had
// begun, else as TEXT with its markers (inside thinking it stays thinking), and is counted as a warning. No
// byte vanishes but markers, the white space around them and the headers of channels. Linear; one per answer,
// one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "text/output/call_reader.h"
#include "text/output/call_stream.h"
#include "text/output/lexer.h"
#include "text/output/marker_table.h"
#include "text/output/output_format.h"
#include "text/output/value_end.h"

namespace baton::output {

enum class PartKind { kText, kThinking, kToolCall };

// Parts are numbered from 0; each has one kStart, then its text or arguments, then one kEnd.
struct PartEvent {
  enum class Type { kStart, kText, kArguments, kEnd };
  uint32_t part = 0;
  Type type = Type::kStart;
  PartKind kind = PartKind::kText;
  // kText and kArguments: a fragment. Those of a call, one after the other, are a JSON object.
  std::string text;
  // kStart of a call.
  std::string id;
  std::string name;
  // kEnd: false if the answer ended inside thinking or inside a call (which then may be text), or if a call
  // that had begun is not well-formed.
  bool complete = true;

  bool operator==(const PartEvent&) const = default;
};

// Findings in an answer that a client may want to know of.
enum class Warning {
  kMalformedCall,   // what looked like a call could not be read
  kIncompleteCall,  // the answer ended inside one
  kUnknownTool,     // a call of a tool that is not among Options::names; it is text
};
inline constexpr std::array kWarnings = {Warning::kMalformedCall, Warning::kIncompleteCall,
                                         Warning::kUnknownTool};

class Parser {
 public:
  struct Options {
    // Calls are looked for. Without tools in the request, text that looks like one is text.
    bool tools = true;
    // The tools that may be called; empty: any.
    std::vector<std::string> names;
    // The prompt ended inside thinking, because the template wrote the opener. Of no meaning with channels.
    bool thinking = false;
    ParameterType type;
    // Seed of the ids that a format has none of, beside the place of the call and its name.
    uint64_t id_seed = 0;
  };
  // The table outlives the parser.
  Parser(const MarkerTable& markers, Options options);

  // The next token and the text that the detokenizer made of it. Appends to `out`.
  void Push(TokenId token, std::string_view text, std::vector<PartEvent>* out);
  // The end of the answer. `text`: what the detokenizer still held.
  void Finish(std::string_view text, std::vector<PartEvent>* out);

  // Calls that are whole.
  int calls() const { return calls_; }
  int warnings(Warning kind) const { return warnings_[static_cast<size_t>(kind)]; }
  int warnings() const { return warnings_[0] + warnings_[1] + warnings_[2]; }
  // The next token may begin thinking, if it is not part of it already.
  bool may_think() const { return state_ != State::kText; }
  // The next token is part of thinking, unless it ends it.
  bool in_thinking() const { return state_ == State::kThinking; }
  // True if the last token is part of thinking, its markers included (of a marker that is spelled, the token
  // that completes it).
  bool thinking() const { return thinking_; }

 private:
  enum class State {
    kOpen,      // nothing but white space since the start, or since the last part that was no text
    kText,      //
    kThinking,  //
    kSection,   // between the calls of a section
    kCall,      //
    kHeader,    // of a channel
  };

  void Handle(std::vector<PartEvent>* out);
  void OnText(std::string_view text);
  void OnMarker(const std::string& marker);
  void OnChannelMarker(const std::string& marker);
  void StartChannel();
  void EndHeader();
  // Takes a call's text; returns how much of `text` belongs to the call.
  size_t Collect(std::string_view text);
  // Tells what can be told of the call now that `text` came.
  void Tell(std::string_view text);
  // An object in a list of calls is complete.
  void EndItem(std::string_view item);
  void StartCall(std::string_view opener, State after);
  // The call's text is complete; `cut`: because the answer is over.
  void EndCall(std::string_view closer, bool cut = false);
  void EndBegunCall(const std::optional<std::vector<Call>>& calls, std::string_view body, bool cut);
  void EmitCall(const Call& call);
  // A marker inside a string of a call: it and what follows wait for a verdict.
  void Doubt(std::string_view text);
  void DoubtMarker(const std::string& marker);
  void Settle(bool quoted);

  // True if `marker` ends a call.
  bool Closes(const std::string& marker) const;
  bool Offered(std::string_view tool) const;
  void Warn(Warning kind) { ++warnings_[static_cast<size_t>(kind)]; }

  void Write(PartKind kind, std::string_view text);
  void WriteArguments(std::string_view arguments);
  void StartPart(PartKind kind, std::string id = "", std::string name = "");
  void EndPart(bool complete = true);
  std::string MadeId(std::string_view name) const;

  const OutputFormat& format_;
  const Options options_;
  Lexer lexer_;
  std::vector<Lexeme> lexemes_;
  std::vector<PartEvent>* out_ = nullptr;

  State state_;
  bool thinking_;
  bool in_part_ = false;
  PartKind kind_ = PartKind::kText;
  uint32_t parts_ = 0;
  bool start_ = true;   // no marker yet: white space is the answer's own
  std::string spaces_;  // held back: dropped before a marker, written before more text

  // The call's text from its opener on, and where in it the call's own text begins.
  std::string raw_;
  size_t body_ = 0;
  State before_call_ = State::kOpen;
  State after_call_ = State::kOpen;
  bool closer_due_ = false;  // a call ended thinking; the closer may still come, and means nothing
  bool bare_ = false;        // begun by a bracket alone; also between such calls
  bool value_begun_ = false;
  ValueEnd value_;
  std::optional<CallStream> stream_;
  bool begun_ = false;    // its part has begun
  std::string streamed_;  // what has left of its arguments
  // Objects of a list that have left, where in raw_ they end, and where the next one begins.
  size_t listed_ = 0, listed_end_ = 0, item_ = 0;
  bool listing_ = false;         // all objects so far have left
  std::vector<Lexeme> doubted_;  // from a marker in a string on
  QuotedMarker doubt_;
  bool settled_ = false;  // what is handled was doubted before: markers are markers
  std::string header_;    // of a channel

  int calls_ = 0;
  std::array<int, kWarnings.size()> warnings_ = {};
};

}  // namespace baton::output
