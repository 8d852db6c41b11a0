// Utf8Assembler: bytes in any portions to well-formed UTF-8. A character leaves when it is complete; each
// maximal ill-formed part becomes one U+FFFD (Unicode 15, section 3.9, "U+FFFD substitution of maximal
// subparts"), which is what Rust's from_utf8_lossy and Python's errors="replace" do. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::text {

// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

class Utf8Assembler {
 public:
  // Appends what became certain to *out.
  void Push(std::string_view bytes, std::string* out);
  // The end of the text: an incomplete character becomes U+FFFD.
  void Flush(std::string* out);
  // A character has begun and not ended.
  bool pending() const { return size_ > 0; }

 private:
  char pending_[4] = {};  // the start of a character
  int size_ = 0;
  int need_ = 0;        // bytes still missing
  uint8_t low_ = 0x80;  // bounds of the next continuation byte (they exclude overlong forms and surrogates)
  uint8_t high_ = 0xBF;
};

// True if `text` is well-formed.
bool IsUtf8(std::string_view text);

}  // namespace baton::text
