// AnswerParts: an answer as typed parts. Tokens and their text come in; what leaves goes into deltas: the
// parts, and the text of the TEXT parts, in which alone stop strings are looked for. Decides when an answer
// ends with its first call, and which tokens a budget of thinking puts in the model's place. All of it
// follows from the tokens, so an answer that was begun elsewhere goes on with the same parts. One per
// sequence, engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "common/base/ids.h"
#include "text/output/marker_table.h"
#include "text/output/parser.h"
#include "text/stop_matcher.h"

namespace baton::decode_service {

class AnswerParts {
 public:
  struct Options {
    std::shared_ptr<const output::MarkerTables> tables;
    const output::MarkerTable* markers = nullptr;  // one of them
    output::Parser::Options parser;
    bool one_call = false;
    bool hide_thinking = false;
    std::optional<int64_t> thinking_budget;
  };
  // FAILED_PRECONDITION: this worker does not know the format. `id_seed`: see output::Parser.
  static absl::StatusOr<Options> ReadOptions(const fleet::v1::AnswerFormat& format,
                                             std::shared_ptr<const output::MarkerTables> tables,
                                             uint64_t id_seed);

  AnswerParts(Options options, const std::vector<std::string>& stops);

  // The next token and the text that it completed. whole: no character is begun and not ended. Not after the
  // end.
  void Push(TokenId token, std::string_view text, bool whole, v1::Delta& delta);
  // The answer ends here; `text` is what the detokenizer still held. Not after the end.
  void Finish(std::string_view text, v1::Delta& delta);

  // The answer has ended: by a stop string, or with its first call, or by Finish.
  bool ended() const { return ended_; }
  const std::optional<std::string>& stop_match() const { return stop_match_; }
  // Its first call ended it.
  bool ended_by_call() const { return ended_by_call_; }

  // The token that comes next whatever the logits say: the budget is used up.
  std::optional<TokenId> Forced() const;
  // There may be one after the next token, too.
  bool MayForce() const;
  // There may be one after any token.
  bool CanForce() const { return options_.thinking_budget.has_value() && !was_cut_; }

  // The last token is part of thinking, or a marker of it; and the next one may be, unless it ends it.
  bool thinking() const { return parser_.thinking(); }
  bool in_thinking() const { return parser_.in_thinking(); }

  // Calls that are complete.
  int calls() const { return parser_.calls(); }
  int64_t thinking_tokens() const { return thinking_tokens_; }
  int warnings(output::Warning kind) const { return parser_.warnings(kind); }
  std::string_view format() const { return options_.markers->format().name; }

 private:
  void Send(v1::Delta& delta);
  void SendText(uint32_t part, std::string_view text, v1::Delta& delta);

  const Options options_;
  const text::StopMatcher no_text_;  // as it is before any text
  text::StopMatcher stops_;
  output::Parser parser_;
  std::vector<output::PartEvent> events_;
  bool ended_ = false;
  bool ended_by_call_ = false;
  std::optional<std::string> stop_match_;
  int64_t thinking_tokens_ = 0;
  bool whole_ = true;
  size_t cut_ = 0;        // of the tokens that cut thinking: how many came
  bool was_cut_ = false;  // all of them: what the model thinks after them it may think
};

// Adds tokens of thinking, and warnings, to an answer's end.
void AddPartsReport(const AnswerParts& parts, v1::Finished* finished);

}  // namespace baton::decode_service
