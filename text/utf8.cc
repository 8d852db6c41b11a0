#include "text/utf8.h"

namespace baton::text {
namespace {}  // namespace

void Utf8Assembler::Push(std::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (need_ > 0) {
      if (byte >= low_ && byte <= high_) {
        pending_[size_++] = c;
        low_ = 0x80;
        high_ = 0xBF;
        if (--need_ == 0) {
          out->append(pending_, size_);
          size_ = 0;
        }
        continue;
      }
      // The part so far can't be completed; this byte starts a new one.
      Flush(out);
    }
    if (byte < 0x80) {
      out->push_back(c);
      continue;
    }
    // Well-formed UTF-8 byte sequences, table 3-7 of the Unicode Standard.
    low_ = 0x80;
    high_ = 0xBF;
    if (byte >= 0xC2 && byte <= 0xDF) {
      need_ = 1;
    } else if (byte >= 0xE0 && byte <= 0xEF) {
      need_ = 2;
      if (byte == 0xE0) low_ = 0xA0;
      if (byte == 0xED) high_ = 0x9F;
    } else if (byte >= 0xF0 && byte <= 0xF4) {
      need_ = 3;
      if (byte == 0xF0) low_ = 0x90;
      if (byte == 0xF4) high_ = 0x8F;
    } else {
      out->append(kReplacement);
      continue;
    }
    pending_[size_++] = c;
  }
}

void Utf8Assembler::Flush(std::string* out) {
  if (need_ > 0) out->append(kReplacement);
  need_ = 0;
  size_ = 0;
}

bool IsUtf8(std::string_view text) {
  Utf8Assembler assembler;
  std::string assembled;
  assembler.Push(text, &assembled);
  assembler.Flush(&assembled);
  return assembled == text;
}

}  // namespace baton::text
