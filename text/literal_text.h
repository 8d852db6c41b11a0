// LiteralText: keeps control tokens out of text that people, tools and pages wrote. "<|im_end|>" in a message
// is those ten characters, and never the end of a turn. Text without control tokens is not touched. In
// others, a mark (a character that occurs nowhere in the request) goes inside each occurrence; the chat
// template renders the text with its marks, and Tokenizer::EncodeMarked takes them out and recognises no
// token across one. So the template's own control tokens work, and everything around the text is encoded as
// ever. Immutable, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::text {

class LiteralText {
 public:
  // chat_template may be null. Renders a conversation of plain words, to learn which tokens make its turns.
  LiteralText(std::shared_ptr<const Tokenizer> tokenizer, const ChatTemplate* chat_template);

  struct Marked {
    char32_t mark = 0;   // 0: no text needed one
    int64_t tokens = 0;  // occurrences of control tokens
    int64_t marks = 0;   // also where an end of a text could be completed by the text that follows
  };

  // Marks the variables of a chat template (ChatTemplate::Render): all texts and all names of members, in
  // messages, tools and further variables. In the content of an
  // assistant's message, `kept_in_answers` are left as they are. INVALID_ARGUMENT if no character is left to
  // be the mark.
  absl::StatusOr<Marked> Mark(ChatTemplate::Json* variables) const;
  // Marks one text.
  absl::StatusOr<Marked> Mark(std::string* text) const;
  // Takes the marks out of what was rendered.
  static std::string Unmark(std::string_view text, char32_t mark);

  // Control tokens that are not special and make no turn, such as <think> and <tool_call>: an answer's text
  // has them, and a client that sends the answer back as content means them.
  const std::vector<TokenId>& kept_in_answers() const { return kept_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TokenId> kept_;  // ascending
};

}  // namespace baton::text
