#include "tests/fuzz/grammar_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "tests/fuzz/source_folder.h"
#include "text/grammar.h"
#include "text/output/call_grammar.h"
#include "text/output/constraint.h"
#include "text/tokenizer.h"

namespace baton::output {
namespace {

// Tokens of an answer that are drawn under a grammar.
constexpr int kSteps = 24;

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

struct Model {
  std::shared_ptr<const text::Tokenizer> tokenizer =
      text::Tokenizer::Load(fuzz::InSource("tests/golden/text/tokenizers/qwen_like")).value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary =
      text::GrammarVocabulary::Make(*tokenizer).value();
  MarkerTables tables = MarkerTables(*tokenizer);
};

const Model& TheModel() {
  static const auto* const model = new Model();
  return *model;
}

absl::StatusOr<std::string> Grammar(std::span<const uint8_t> bytes) {
  const std::string text(bytes.begin() + 2, bytes.end());
  switch (bytes[0] % 5) {
    case 0:
      return SchemaGrammar(text);
    case 1:
      return RegexGrammar(text);
    case 2:
      return ChoiceGrammar(std::vector<std::string>(absl::StrSplit(text, '\n')));
    case 3:
      return LarkGrammar(text);
    default:
      break;
  }
  const OutputFormat& format = Formats()[bytes[1] / 4 % Formats().size()];
  const MarkerTable& markers = *TheModel().tables.Find(format.name);
  if (!CanConstrainCalls(markers, /*thinks=*/false)) return absl::InvalidArgumentError("not this format");
  std::vector<CallableTool> tools = {{.name = "f", .arguments = ""},
                                     {.name = "get_weather", .arguments = ""}};
  for (int i = 0; i < 2; ++i) {
    auto arguments = ArgumentsGrammar(markers, text, i);
    if (!arguments.ok()) return arguments;
    tools[i].arguments = *std::move(arguments);
  }
  return CallGrammar(markers, tools, {.required = (bytes[1] & 1) != 0, .one_call = (bytes[1] & 2) != 0});
}

}  // namespace

absl::Status FuzzGrammar(std::span<const uint8_t> bytes) {
  if (bytes.size() < 3) return absl::OkStatus();
  const auto grammar = Grammar(bytes);
  if (!grammar.ok()) {
    return absl::IsInvalidArgument(grammar.status()) ? absl::OkStatus() : grammar.status();
  }
  auto matcher = TheModel().vocabulary->Compile(*grammar);
  if (!matcher.ok()) {
    if (!absl::IsInvalidArgument(matcher.status())) return matcher.status();
    return matcher.status().message().empty() ? Unsound("refused without a word") : absl::OkStatus();
  }
  text::TokenMask mask(TheModel().vocabulary->mask_words()), again = mask;
  uint32_t state = 1;
  for (const uint8_t byte : bytes) state = state * 31 + byte;
  for (int step = 0; step < kSteps; ++step) {
    text::GrammarMatcher fork = matcher->Fork();
    const auto ends = matcher->Mask(mask);
    if (!ends.ok()) return absl::IsInvalidArgument(ends.status()) ? absl::OkStatus() : ends.status();
    if (const auto other = fork.Mask(again); !other.ok() || *other != *ends || again != mask) {
      return Unsound("a fork stands elsewhere");
    }
    std::vector<TokenId> allowed;
    for (int32_t id = 0; id < TheModel().tokenizer->vocabulary(); ++id) {
      if (text::Allows(mask, TokenId(id))) allowed.emplace_back(id);
    }
    if (allowed.empty()) return *ends ? absl::OkStatus() : Unsound("neither a token nor the end");
    state = state * 1664525 + 1013904223;
    const TokenId token = allowed[(state >> 8) % allowed.size()];
    if (const absl::Status pushed = matcher->Push(token); !pushed.ok()) {
      return Unsound(
          fmt::format("token {} of the mask is refused: {}", token.value(), std::string(pushed.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::output
