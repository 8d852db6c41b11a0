#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "tests/unit/text/tokenizer_folders.h"
#include "text/rust/baton_text.h"

namespace baton::text {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// The library, asked for a whole run at once.
class Library {
 public:
  explicit Library(const std::string& kind) {
    const std::string json = ReadAll(FolderOf(kind) + "/tokenizer.json");
    baton_text_bytes error;
    EXPECT_EQ(baton_tokenizer_new(reinterpret_cast<const uint8_t*>(json.data()), json.size(), nullptr, 0,
                                  &handle_, &error),
              0);
  }
  ~Library() { baton_tokenizer_free(handle_); }

  std::string Decode(const std::vector<TokenId>& tokens, bool keep_special) const {
    std::vector<uint32_t> ids;
    for (const TokenId token : tokens) ids.push_back(static_cast<uint32_t>(token.value()));
    baton_text_bytes out;
    baton_text_bytes error;
    EXPECT_EQ(baton_tokenizer_decode(handle_, ids.data(), ids.size(), keep_special, &out, &error), 0);
    std::string text(reinterpret_cast<const char*>(out.data), out.size);
    baton_text_bytes_free(out);
    return text;
  }

 private:
  baton_tokenizer* handle_ = nullptr;
};

// Length of the well-formed character at the start of `text`, or 0.
size_t CharacterAt(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const size_t size = byte(0) < 0x80 ? 1 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
  if (text.empty() || size > text.size()) return 0;
  if (size == 1) return 1;
  uint32_t code = byte(0) & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};
  if (byte(0) < 0xC0 || byte(0) > 0xF7 || code < kMinCode[size] || code > 0x10FFFF ||
      (code >= 0xD800 && code < 0xE000))
    return 0;
  return size;
}

bool WellFormed(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterAt(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string Stream(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<TokenId>& tokens,
                   bool keep_special) {
  Detokenizer detokenizer(tokenizer, keep_special);
  std::string text;
  for (const TokenId token : tokens) {
    const std::string piece = detokenizer.Push(token);
    EXPECT_TRUE(WellFormed(piece));
    text += piece;
  }
  return text + detokenizer.Flush();
}

bool IsFallbackByte(const Tokenizer& tokenizer, TokenId token) {
  return tokenizer.TokenBytes(token).size() == 1 && token.value() >= 3 && token.value() < 259;
}

TEST(DetokenizerTest, StreamsWhatTheLibraryDecodes) {
  std::mt19937_64 engine = SeededEngine();
  for (const std::string& kind : TokenizerKinds()) {
    const auto tokenizer = LoadKind(kind);
    const Library library(kind);
    for (int round = 0; round < 400; ++round) {
      std::vector<TokenId> tokens;
      const size_t length = Below(engine, 40);
      while (tokens.size() < length) {
        const TokenId token(static_cast<int32_t>(Below(engine, tokenizer->vocabulary())));
        if (kind != "llama2_like" || !IsFallbackByte(*tokenizer, token)) {
          tokens.push_back(token);
          continue;
        }
        // Byte fallback as a tokenizer produces it: whole characters.
        std::string character;
        AppendUtf8(RandomCharacter(engine), &character);
        for (const char byte : character) tokens.emplace_back(3 + static_cast<uint8_t>(byte));
      }
      for (const bool keep_special : {false, true}) {
        const std::string expected = library.Decode(tokens, keep_special);
        ASSERT_EQ(Stream(tokenizer, tokens, keep_special), expected) << kind;
        ASSERT_EQ(*tokenizer->Decode(tokens, keep_special), expected) << kind;
      }
    }
  }
}

// Byte fallback with bytes in any order: complete characters stay, each maximal ill-formed part is one
// U+FFFD.
TEST(DetokenizerTest, IllFormedByteRunsKeepTheirCharacters) {
  std::mt19937_64 engine = SeededEngine();
  const auto tokenizer = LoadKind("llama2_like");
  constexpr uint8_t kInteresting[] = {0x20, 0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2,
                                      0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> tokens;
    std::string bytes;
    for (size_t length = 1 + Below(engine, 8); length > 0; --length) {
      tokens.emplace_back(3 + kInteresting[Below(engine, std::size(kInteresting))]);
      bytes += tokenizer->TokenBytes(tokens.back());
    }
    // Naively: at each position, a character; else the longest part that some continuation would complete, or
    // one byte.
    std::string expected;
    for (std::string_view rest = bytes; !rest.empty();) {
      size_t size = CharacterAt(rest);
      if (size > 0) {
        expected += rest.substr(0, size);
      } else {
        size = 1;
        for (size_t part = 2; part < 4 && part <= rest.size(); ++part) {
          // Only the second byte of a character has narrower bounds, and it is there.
          const bool completes = CharacterAt(std::string(rest.substr(0, part)) + "\x80\x80") > part;
          if (completes) size = part;
        }
        expected += kReplacement;
      }
      rest.remove_prefix(size);
    }
    if (expected.starts_with(' ')) expected.erase(0, 1);
    ASSERT_EQ(Stream(tokenizer, tokens, true), expected) << testing::PrintToString(bytes);
  }
}

TEST(DetokenizerTest, WaitsForTheWholeCharacter) {
  const auto tokenizer = LoadKind("llama2_like");
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_FALSE(detokenizer.pending());
  for (const uint8_t byte : {0xF0, 0x9F, 0x9A}) {
    EXPECT_EQ(detokenizer.Push(TokenId(3 + byte)), "");
    EXPECT_TRUE(detokenizer.pending());
  }
  EXPECT_EQ(detokenizer.Push(TokenId(3 + 0x80)), "\U0001F680");
  EXPECT_FALSE(detokenizer.pending());
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(DetokenizerTest, AnIncompleteCharacterAtTheEndIsReplaced) {
  const auto tokenizer = LoadKind("llama2_like");
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.Push(TokenId(3 + 0xE2)), "");
  EXPECT_EQ(detokenizer.Push(TokenId(3 + 0x82)), "");
  EXPECT_EQ(detokenizer.Flush(), kReplacement);
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(DetokenizerTest, TakesOffOneLeadingSpaceOnly) {
  const auto tokenizer = LoadKind("llama2_like");
  const auto ids = tokenizer->Encode("a", false);
  ASSERT_TRUE(ids.ok());
  TokenId space{-1};
  for (int32_t id = 259; id < tokenizer->vocabulary(); ++id) {
    if (tokenizer->TokenBytes(TokenId(id)) == " ") space = TokenId(id);
  }
  ASSERT_GE(space.value(), 0);
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.Push(space), "");
  EXPECT_EQ(detokenizer.Push(space), " ");
  EXPECT_EQ(detokenizer.Push(space), " ");
}

TEST(DetokenizerTest, PaddedIdsHaveNoText) {
  const auto tokenizer = LoadKind("qwen_like");
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.Push(TokenId(static_cast<int32_t>(tokenizer->vocabulary()) + 7)), "");
  EXPECT_EQ(detokenizer.Push(TokenId(-1)), "");
}

}  // namespace
}  // namespace baton::text
