#include "text/tokenizer_digest.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/digest.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

// None has a control token of any model in it: what stands beside one is another matter.
constexpr std::string_view kProbes[] = {
    "The quick brown fox jumps over the lazy dog.",
    "It's what we'll say: THEY'VE, I'm, don't, you'd, she's, WE'RE; 'twas rock'n'roll",
    "camelCase PascalCase UPPER lower hELLO",
    "0 7 42 123 1234 12345 1234567 3.14159 1,000,000 2^10 1e-9 0xFF",
    "a b  c   d    e",
    " leading and trailing ",
    "one\ntwo\n\nthree\r\nfour\n \n  five\n",
    "\tone\t\ttwo \t three",
    "no\u00A0break\u2003em\u3000wide\u200Bzero\uFEFF",
    "if (x[i] != y->z) { return f(a, b)++; }  // #!? @$%&*~`|\\",
    "https://example.org/a-b_c?d=e&f=%20#g <name@example.org>",
    "e\u0301 \u00E9 A\u030A \u00C5 \u212B n\u0303 \u1E9B\u0323",
    "\uFB01 \uFB02 \u00B2 \u00BD \u2460 \u2126 \u1E9E \u00DF \u0130 \u0131 \u017F",
    "\uFF21\uFF22\uFF23\uFF11\uFF12\uFF13 \u2018\u2019\u201C\u201D\u2013\u2014\u2026",
    "na\u00EFve fa\u00E7ade \u00DCber \u0141\u00F3d\u017A \u010Desk\u00FD",
    "\u0395\u03BB\u03BB\u03B7\u03BD\u03B9\u03BA\u03AC",
    "\u041F\u0440\u0438\u0432\u0435\u0442, \u043C\u0438\u0440! \u0419\u0451",
    "\u05E9\u05DC\u05D5\u05DD \u05E2\u05D5\u05DC\u05DD",
    "\u0627\u0644\u0633\u0651\u0644\u0627\u0645\u064F \u0663\u0664",
    "\u0928\u092E\u0938\u094D\u0924\u0947 \u096A\u0968",
    "\u0E2A\u0E27\u0E31\u0E2A\u0E14\u0E35\u0E0A\u0E32\u0E27\u0E42\u0E25\u0E01",
    "\u4F60\u597D\uFF0C\u4E16\u754C\u3002\u81FA\u7063",
    "\u3053\u3093\u306B\u3061\u306F\u30AB\u30BF\u30AB\u30CA\uFF76\uFF9E",
    "\uC548\uB155 \u1112\u1161\u11AB\u1100\u1173\u11AF",
    "\U0001F600 \U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1EB\U0001F1F7 \u2764\uFE0F \U0001D538",
};

// The tokens that are encoded together: so many that calls cost little.
constexpr size_t kTogether = 256;

class DigestInput {
 public:
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(number >> shift & 0xFF));
  }
  void Add(std::string_view text) {
    Add(text.size());
    bytes_ += text;
  }
  // The ids of a text. A text that the tokenizer can't encode (no token for a character, and none for what is
  // unknown) is one that others can't either.
  void AddIds(const Tokenizer& tokenizer, std::string_view text, bool special) {
    const auto ids = tokenizer.Encode(text, special);
    Add(ids.ok() ? ids->size() : UINT64_MAX);
    if (!ids.ok()) return;
    for (const TokenId id : *ids) Add(static_cast<uint32_t>(id.value()));
  }
  std::string Digest() const { return Sha256Of(bytes_); }

 private:
  std::string bytes_;
};

TokenId IdAt(int64_t index) { return TokenId(static_cast<int32_t>(index)); }

}  // namespace

std::string TokenizerDigest(const Tokenizer& tokenizer) {
  DigestInput input;
  const int64_t size = tokenizer.vocabulary();
  input.Add(static_cast<uint64_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    input.Add(tokenizer.TokenBytes(IdAt(i)));
    input.Add(tokenizer.IsControl(IdAt(i)) ? 1 : 0);
  }
  for (const std::string_view probe : kProbes) {
    input.AddIds(tokenizer, probe, /*special=*/false);
    input.AddIds(tokenizer, probe, /*special=*/true);
  }
  // Each token alone is as many merges as it is long; two in a row are more.
  std::string alone, pairs;
  size_t gathered = 0, sampled = 0;
  const auto encode = [&] {
    input.AddIds(tokenizer, alone, /*special=*/false);
    input.AddIds(tokenizer, pairs, /*special=*/false);
    alone.clear();
    pairs.clear();
    gathered = 0;
  };
  size_t controls = 0;
  const int64_t stride = std::max<int64_t>(1, (size + kSampledTokens - 1) / kSampledTokens);
  for (int64_t i = 0; i < size; ++i) {
    const std::string_view token = tokenizer.TokenBytes(IdAt(i));
    if (token.empty() || !IsUtf8(token)) continue;
    if (tokenizer.IsControl(IdAt(i))) {
      if (controls++ < kSampledTokens) input.AddIds(tokenizer, token, /*special=*/false);
      continue;
    }
    if (i % stride != 0) continue;
    alone += token;
    alone += '\n';
    pairs += token;
    if (sampled++ % 2 == 1) pairs += '\n';
    if (++gathered == kTogether) encode();
  }
  encode();
  return input.Digest();
}

}  // namespace baton::text
