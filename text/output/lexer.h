// Lexer: an answer's tokens become text and the markers of its format. A marker that is one added token is
// that token alone: text that spells it out of ordinary tokens is quoted text. A marker that is none is found
// in the text, of which at most its length less one byte is held back. What comes out follows from the tokens
// alone, however they are grouped. Linear in the text; one per answer, one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "text/output/marker_table.h"

namespace baton::output {

// Text, or a marker as it is written in the format.
struct Lexeme {
  bool marker = false;
  std::string text;

  bool operator==(const Lexeme&) const = default;
};

class Lexer {
 public:
  // The table outlives the lexer.
  explicit Lexer(const MarkerTable& markers) : markers_(markers) {}

  // The next token, with the text that the detokenizer made of it (which may lag behind). Appends to `out`;
  // two texts in a row are one.
  void Push(TokenId token, std::string_view text, std::vector<Lexeme>* out);
  // The end, with the text that belongs to no token: what is held back then is text.
  void Finish(std::string_view text, std::vector<Lexeme>* out);

  // Bytes that are held back; a test holds this below the longest marker.
  size_t held() const { return held_.size(); }

 private:
  void Scan(std::string_view text, std::vector<Lexeme>* out);

  const MarkerTable& markers_;
  std::string held_;
};

}  // namespace baton::output
