#include "tests/fuzz/output_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/source_folder.h"
#include "text/output/lexer.h"
#include "text/output/marker_table.h"
#include "text/output/parser.h"
#include "text/tokenizer.h"

namespace baton::output {
namespace {

const TokenId kWord{100};

// A token, and the text that came with it.
struct Piece {
  TokenId token = kWord;
  std::string text;
};

struct Part {
  PartKind kind;
  std::string text, name, id;
  bool complete = true;

  bool operator==(const Part&) const = default;
};

struct Parsed {
  std::vector<Part> parts;
  int calls = 0;
  int warnings = 0;

  bool operator==(const Parsed&) const = default;
};

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

// Knows <tool_call>, </tool_call>, <|start|> and <|end|>, and spells every other marker.
const text::Tokenizer& Tokens() {
  static const auto tokenizer =
      text::Tokenizer::Load(fuzz::InSource("tests/golden/text/tokenizers/qwen_like"));
  BATON_CHECK(tokenizer.ok()) << tokenizer.status();
  return **tokenizer;
}

const MarkerTable& Table(const OutputFormat& format) {
  static const auto* const tables = new MarkerTables(Tokens());
  return *tables->Find(format.name);
}

// Its token, or one that is no marker.
TokenId TokenOf(std::string_view marker) {
  const auto tokens = Tokens().Encode(marker, /*add_special_tokens=*/false);
  const bool one = tokens.ok() && tokens->size() == 1 && Tokens().IsControl(tokens->front());
  return one ? tokens->front() : kWord;
}

std::vector<Piece> Answer(const OutputFormat& format, std::span<const uint8_t> bytes) {
  std::vector<Piece> markers;
  for (const std::string_view marker : Markers(format))
    markers.push_back({TokenOf(marker), std::string(marker)});
  std::vector<Piece> pieces;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != 0xFF) {
      // A detokenizer gives whole characters.
      pieces.push_back({kWord, bytes[i] < 0x80 ? std::string(1, static_cast<char>(bytes[i])) : "\u00E9"});
    } else if (++i < bytes.size() && !markers.empty()) {
      pieces.push_back(markers[bytes[i] % markers.size()]);
    }
  }
  return pieces;
}

// Ordinary tokens side by side become one, of up to `longest` bytes; a marker's token stays alone.
std::vector<Piece> Grouped(const std::vector<Piece>& pieces, size_t longest) {
  std::vector<Piece> grouped;
  for (const Piece& piece : pieces) {
    if (piece.token == kWord && !grouped.empty() && grouped.back().token == kWord &&
        grouped.back().text.size() + piece.text.size() <= longest) {
      grouped.back().text += piece.text;
    } else {
      grouped.push_back(piece);
    }
  }
  return grouped;
}

absl::Status CheckCall(const Part& part) {
  if (part.name.empty() || part.id.empty()) return Unsound("a call without name or id");
  if (!part.complete) return absl::OkStatus();
  const auto arguments = nlohmann::json::parse(part.text, nullptr, /*allow_exceptions=*/false);
  return arguments.is_object() ? absl::OkStatus() : Unsound("arguments are no object: " + part.text);
}

absl::Status Fold(const std::vector<PartEvent>& events, Parsed* parsed) {
  bool open = false;
  for (const PartEvent& event : events) {
    if (event.type == PartEvent::Type::kStart) {
      if (open || event.part != parsed->parts.size()) return Unsound("a part begins where none may");
      parsed->parts.push_back({.kind = event.kind, .name = event.name, .id = event.id});
      open = true;
      continue;
    }
    if (!open || event.part + 1 != parsed->parts.size()) return Unsound("an event of no part");
    Part& part = parsed->parts.back();
    if (event.kind != part.kind) return Unsound("an event of another kind");
    if (event.type == PartEvent::Type::kEnd) {
      part.complete = event.complete;
      open = false;
    } else if ((event.type == PartEvent::Type::kArguments) != (part.kind == PartKind::kToolCall)) {
      return Unsound("text in a call, or arguments outside");
    } else {
      part.text += event.text;
    }
  }
  if (open) return Unsound("a part without end");
  int calls = 0;
  for (const Part& part : parsed->parts) {
    if (part.kind != PartKind::kToolCall) continue;
    if (part.complete) ++calls;
    if (const absl::Status status = CheckCall(part); !status.ok()) return status;
  }
  return calls == parsed->calls ? absl::OkStatus() : Unsound("another number of calls than counted");
}

absl::Status Parse(const OutputFormat& format, const Parser::Options& options,
                   const std::vector<Piece>& pieces, Parsed* parsed) {
  Parser parser(Table(format), options);
  std::vector<PartEvent> events;
  for (const Piece& piece : pieces) parser.Push(piece.token, piece.text, &events);
  parser.Finish("", &events);
  *parsed = {.calls = parser.calls(), .warnings = parser.warnings()};
  return Fold(events, parsed);
}

// The lexer loses and adds nothing, and holds back less than the longest marker.
absl::Status CheckLexer(const OutputFormat& format, const std::vector<Piece>& pieces) {
  size_t longest = 1;
  for (const std::string_view marker : Markers(format)) longest = std::max(longest, marker.size());
  Lexer lexer(Table(format));
  std::vector<Lexeme> lexemes;
  std::string all;
  for (const Piece& piece : pieces) {
    lexer.Push(piece.token, piece.text, &lexemes);
    if (lexer.held() >= longest) return Unsound(fmt::format("the lexer holds back {} bytes", lexer.held()));
    all += piece.text;
  }
  lexer.Finish("", &lexemes);
  std::string out;
  for (const Lexeme& lexeme : lexemes) out += lexeme.text;
  return out == all ? absl::OkStatus() : Unsound("the lexer changes the text");
}

// The text without white space, the separators of bare calls, and markers.
std::string Bare(const OutputFormat& format, std::string text) {
  for (const std::string_view marker : Markers(format)) {
    for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at)) {
      text.replace(at, marker.size(), 1, ' ');
    }
  }
  std::erase_if(text,
                [](char c) { return std::string_view(" \t\n\v\f\r;").find(c) != std::string_view::npos; });
  return text;
}

}  // namespace

absl::Status FuzzOutput(std::span<const uint8_t> bytes) {
  if (bytes.size() < 2) return absl::OkStatus();
  const OutputFormat& format = Formats()[bytes[0] % Formats().size()];
  const Parser::Options options = {
      .tools = (bytes[1] & 1) == 0,
      .names =
          (bytes[1] & 4) == 0 ? std::vector<std::string>() : std::vector<std::string>{"f", "get_weather"},
      .thinking = (bytes[1] & 2) != 0,
      .type = [](std::string_view, std::string_view parameter) {
        return parameter == "zip" ? "string" : parameter == "days" ? "integer" : "";
      }};
  const std::vector<Piece> pieces = Answer(format, bytes.subspan(2));
  if (const absl::Status status = CheckLexer(format, pieces); !status.ok()) return status;
  Parsed one;
  if (const absl::Status status = Parse(format, options, pieces, &one); !status.ok()) return status;
  for (const size_t longest : {1, 2, 3, 7, 1 << 20}) {
    Parsed other;
    const absl::Status status = Parse(format, options, Grouped(pieces, longest), &other);
    if (!status.ok()) return status;
    if (!(other == one)) {
      return Unsound(fmt::format("{}: other parts with tokens of up to {} bytes", format.name, longest));
    }
  }
  if (one.calls > 0 && !options.tools) return Unsound("a call where none was asked for");
  const bool begun =
      std::ranges::any_of(one.parts, [](const Part& part) { return part.kind == PartKind::kToolCall; });
  if (begun || format.channels) return absl::OkStatus();
  // Without calls nothing is lost but markers and white space.
  std::string answer, said;
  for (const Piece& piece : pieces) answer += piece.text;
  for (const Part& part : one.parts) said += part.text + " ";
  if (Bare(format, answer) != Bare(format, said)) {
    return Unsound(fmt::format("{}: text was lost or added", format.name));
  }
  return absl::OkStatus();
}

}  // namespace baton::output
