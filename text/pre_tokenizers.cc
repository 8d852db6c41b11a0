#include "text/pre_tokenizers.h"

#include <algorithm>
#include <iterator>

namespace baton::text {
namespace {

using Pattern = std::string_view;

constexpr Pattern kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr Pattern kGpt2[] = {kGpt2Words};
constexpr Pattern kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Pattern kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Capitals begin a word: "HTTPServer" is two.
constexpr Pattern kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Pattern kSmolLm[] = {R"(\p{N})", kGpt2Words};
constexpr Pattern kDefault[] = {R"([\p{P}$+<=>^~|]+)", kGpt2Words, R"(\p{N}+)", R"([0-9][0-9][0-9])"};

constexpr Pattern kLineEnds = R"([\r\n])";
// From the first character of Samaritan's block to the last ideograph of Unicode 1.1, and Hangul.
constexpr Pattern kIdeographs = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
// Letters with a case, as some version of Unicode had them. They are part of the models, so they stay as they
// are.
constexpr Pattern kCasedLetters =
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
    "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA"
    "\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45"
    "\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE"
    "\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102"
    "\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06"
    "\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943"
    "]+";
constexpr Pattern kWideMarks = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr Pattern kDeepSeekLlm[] = {kLineEnds, kCasedLetters, kWideMarks,
                                    R"(\s+$)", kIdeographs,   R"(\p{N}+)"};
constexpr Pattern kDeepSeekCoder[] = {kLineEnds, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kIdeographs, R"(\p{N})"};

constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "llama-bpe", .patterns = kLlama3, .whole_words = true, .bos = true},
    {.name = "llama3", .patterns = kLlama3, .whole_words = true, .bos = true},
    {.name = "llama-v3", .patterns = kLlama3, .whole_words = true, .bos = true},
    {.name = "falcon3", .patterns = kLlama3, .whole_words = true, .bos = true},
    {.name = "smaug-bpe", .patterns = kLlama3},
    {.name = "tekken", .patterns = kTekken, .whole_words = true, .bos = true},
    {.name = "qwen2", .patterns = kQwen2, .compose = true},
    {.name = "deepseek-r1-qwen", .patterns = kQwen2, .compose = true},
    {.name = "deepseek-llm", .patterns = kDeepSeekLlm},
    {.name = "deepseek-coder", .patterns = kDeepSeekCoder},
    {.name = "smollm", .patterns = kSmolLm},
    {.name = "gpt-2", .patterns = kGpt2},
    {.name = "default", .patterns = kDefault},
};

}  // namespace

const PreTokenizer* FindPreTokenizer(std::string_view name) {
  const auto* const found = std::ranges::find(
      kPreTokenizers, name.empty() ? std::string_view("default") : name, &PreTokenizer::name);
  return found == std::end(kPreTokenizers) ? nullptr : found;
}

std::string PreTokenizerNames() {
  std::string names;
  for (const PreTokenizer& known : kPreTokenizers) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace baton::text
