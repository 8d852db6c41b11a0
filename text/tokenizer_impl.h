// The contents of a Tokenizer; shared with the Detokenizer and GrammarVocabulary. Internal to this room.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/rust/baton_text.h"
#include "text/rust_call.h"
#include "text/tokenizer.h"

namespace baton::text {

struct Tokenizer::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { CallRust(baton_tokenizer_free, handle); }

  // The library's decoding.
  absl::StatusOr<std::string> Decode(std::span<const uint32_t> ids, bool keep_special) const;

  // Fills `longest` from the table. verbatim: no normalizer changes a text first.
  void MeasureTokens(bool verbatim);

  bool Has(TokenId token) const {
    return InRange(token) && (flags[Index(token)] & BATON_TEXT_TOKEN_PRESENT) != 0;
  }
  bool IsSpecial(TokenId token) const {
    return InRange(token) && (flags[Index(token)] & BATON_TEXT_TOKEN_SPECIAL) != 0;
  }
  bool IsControl(TokenId token) const {
    return InRange(token) && (flags[Index(token)] & BATON_TEXT_TOKEN_CONTROL) != 0;
  }
  std::string_view BytesOf(TokenId token) const {
    if (!InRange(token)) return {};
    const size_t index = Index(token);
    const uint32_t begin = index == 0 ? 0 : ends[index - 1];
    return std::string_view(bytes).substr(begin, ends[index] - begin);
  }

  baton_tokenizer* handle = nullptr;
  // Token i stands for bytes[ends[i - 1], ends[i]).
  std::string bytes;
  std::vector<uint32_t> ends;
  std::string flags;
  baton_text_join join = BATON_TEXT_JOIN_OPAQUE;
  uint32_t strip_spaces = 0;
  // By byte: the length of the longest token that has it.
  std::array<uint32_t, 256> longest = {};

 private:
  static size_t Index(TokenId token) { return static_cast<size_t>(token.value()); }
  bool InRange(TokenId token) const { return token.value() >= 0 && Index(token) < ends.size(); }
};

}  // namespace baton::text
