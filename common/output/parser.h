// Parser: an answer's tokens become parts, in order: TEXT, THINKING and TOOL_CALL. Where it stands follows
// from the tokens alone, so a replay of them (a migration) and any grouping give the same parts. A call
// leaves when it is whole. What does not parse, or is cut by the end of the answer, leaves as TEXT with its
// markers, and is counted as a warning; inside thinking it stays thinking. No byte vanishes but markers, the
// white space around them and the headers of channels. Linear; one per answer, one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/output/call_reader.h"
#include "common/output/lexer.h"
#include "common/output/output_format.h"
#include "common/output/value_end.h"

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
  // kEnd: false if the answer ended inside thinking, or inside a call (which then is text).
  bool complete = true;

  bool operator==(const PartEvent&) const = default;
};

class Parser {
 public:
  struct Options {
    // Calls are looked for. Without tools in the request, text that looks like one is text.
    bool tools = true;
    // The prompt ended inside thinking, because the template wrote the opener. Of no meaning with channels.
    bool thinking = false;
    ParameterType type;
  };
  // `format` lives as long as the program (Formats()); the tokenizer is used only here.
  Parser(const OutputFormat& format, const text::Tokenizer& tokenizer, Options options);

  // The next token and the text that the detokenizer made of it. Appends to `out`.
  void Push(TokenId token, std::string_view text, std::vector<PartEvent>* out);
  // The end of the answer. `text`: what the detokenizer still held.
  void Finish(std::string_view text, std::vector<PartEvent>* out);

  int calls() const { return calls_; }
  // Calls that did not parse, or were cut.
  int warnings() const { return warnings_; }
  // Whether the last token is part of thinking, its markers included (of a marker that is spelled, the token
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
  // Of a call's text; returns how much of `text` belongs to the call.
  size_t Collect(std::string_view text);
  void StartCall(std::string_view opener, State after);
  // The call's text is complete; or the answer is over.
  void EndCall(std::string_view closer);

  void Write(PartKind kind, std::string_view text);
  void StartPart(PartKind kind, std::string id = "", std::string name = "");
  void EndPart(bool complete = true);
  std::string MadeId(std::string_view call) const;

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

  // Of a call: everything from its opener on, and where in it the call's own text begins.
  std::string raw_;
  size_t body_ = 0;
  State before_call_ = State::kOpen;
  State after_call_ = State::kOpen;
  bool closer_due_ = false;  // a call ended thinking; the closer may still come, and means nothing
  bool bare_ = false;        // begun by a bracket alone; also between such calls
  bool value_begun_ = false;
  ValueEnd value_;
  std::string header_;  // of a channel

  int calls_ = 0;
  int warnings_ = 0;
};

}  // namespace baton::output
