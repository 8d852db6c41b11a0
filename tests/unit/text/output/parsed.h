// A parser's result for a text, folded: the parts as a client that waits for the end sees them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/output/parser.h"

namespace baton::output {

struct Part {
  PartKind kind;
  std::string text;  // of a call: its arguments
  std::string name;
  std::string id;
  bool complete = true;

  bool operator==(const Part&) const = default;
};

inline void PrintTo(const Part& part, std::ostream* out) {
  *out << "{" << static_cast<int>(part.kind) << " \"" << part.text << "\" " << part.name << " " << part.id
       << (part.complete ? "" : " cut") << "}";
}

struct Parsed {
  std::vector<Part> parts;
  int warnings = 0;
  int calls = 0;

  bool operator==(const Parsed&) const = default;
};

inline Parsed Fold(const std::vector<PartEvent>& events, const Parser& parser) {
  Parsed parsed{.warnings = parser.warnings(), .calls = parser.calls()};
  bool open = false;
  for (const PartEvent& event : events) {
    EXPECT_TRUE(event.type == PartEvent::Type::kStart || event.type == PartEvent::Type::kEnd ||
                !event.text.empty());
    if (event.type == PartEvent::Type::kStart) {
      EXPECT_FALSE(open) << "a part begins inside another";
      EXPECT_EQ(event.part, parsed.parts.size());
      parsed.parts.push_back({.kind = event.kind, .name = event.name, .id = event.id});
      open = true;
      continue;
    }
    EXPECT_TRUE(open);
    EXPECT_EQ(event.part + 1, parsed.parts.size());
    if (event.type == PartEvent::Type::kEnd) {
      parsed.parts.back().complete = event.complete;
      open = false;
    } else {
      EXPECT_EQ(event.type == PartEvent::Type::kArguments, event.kind == PartKind::kToolCall);
      parsed.parts.back().text += event.text;
    }
  }
  EXPECT_FALSE(open) << "a part without end";
  return parsed;
}

inline std::shared_ptr<const text::Tokenizer> LoadTokenizer(const std::string& folder) {
  auto tokenizer = text::Tokenizer::Load(std::string(BATON_SOURCE_DIR) + "/" + folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

// Knows <tool_call>, </tool_call>, <|start|> and <|end|>, and spells every other marker.
inline std::shared_ptr<const text::Tokenizer> QwenLike() {
  static const auto* tokenizer = new auto(LoadTokenizer("tests/golden/text/tokenizers/qwen_like"));
  return *tokenizer;
}

// Spells every marker.
inline std::shared_ptr<const text::Tokenizer> WordLike() {
  static const auto* tokenizer = new auto(LoadTokenizer("tests/golden/text/tokenizers/wordpiece_like"));
  return *tokenizer;
}

// A table of one of the two tokenizers.
inline const MarkerTable& Table(std::string_view format,
                                const std::shared_ptr<const text::Tokenizer>& tokenizer = QwenLike()) {
  static const auto* qwen = new MarkerTables(*QwenLike());
  static const auto* word = new MarkerTables(*WordLike());
  const MarkerTable* table = (tokenizer == WordLike() ? word : qwen)->Find(format);
  EXPECT_NE(table, nullptr) << format;
  return *table;
}

inline const OutputFormat& Format(std::string_view name) {
  const OutputFormat* format = FindFormat(name);
  EXPECT_NE(format, nullptr) << name;
  return *format;
}

inline Parsed Parse(std::string_view format, std::string_view text, Parser::Options options = {},
                    std::shared_ptr<const text::Tokenizer> tokenizer = QwenLike()) {
  Parser parser(Table(format, tokenizer), std::move(options));
  text::Detokenizer detokenizer(tokenizer, /*keep_special=*/false);
  std::vector<PartEvent> events;
  const auto tokens = tokenizer->Encode(text, /*add_special_tokens=*/false);
  EXPECT_TRUE(tokens.ok());
  for (const TokenId token : *tokens) parser.Push(token, detokenizer.Push(token), &events);
  parser.Finish(detokenizer.Flush(), &events);
  return Fold(events, parser);
}

}  // namespace baton::output
