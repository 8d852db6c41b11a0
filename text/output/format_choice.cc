#include "text/output/format_choice.h"

#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/output/parser.h"

namespace baton::output {
namespace {

using Json = text::ChatTemplate::Json;

std::string TypeOf(std::string_view, std::string_view parameter) {
  if (parameter == "place") return "string";
  if (parameter == "days") return "integer";
  return parameter == "exact" ? "boolean" : "array";
}

struct Read {
  std::string text, thinking;
  std::vector<std::pair<std::string, Json>> calls;
  int warnings = 0;
};

std::optional<Read> Parse(const OutputFormat& format, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                          const Written& written) {
  const auto tokens = tokenizer->Encode(written.answer, /*add_special_tokens=*/false);
  if (!tokens.ok()) return std::nullopt;
  text::Detokenizer detokenizer(tokenizer, /*keep_special=*/false);
  const MarkerTable markers(format, *tokenizer);
  Parser parser(markers, {.thinking = OpensThinking(format, written.before), .type = TypeOf});
  std::vector<PartEvent> events;
  for (const TokenId token : *tokens) parser.Push(token, detokenizer.Push(token), &events);
  parser.Finish(detokenizer.Flush(), &events);
  Read read;
  read.warnings = parser.warnings();
  for (const PartEvent& event : events) {
    if (event.type == PartEvent::Type::kStart && event.kind == PartKind::kToolCall) {
      read.calls.emplace_back(event.name, Json());
    }
    if (event.type == PartEvent::Type::kArguments) {
      read.calls.back().second = Json::parse(event.text, nullptr, /*allow_exceptions=*/false);
    }
    if (event.type == PartEvent::Type::kText) {
      (event.kind == PartKind::kThinking ? read.thinking : read.text) += event.text;
    }
  }
  return read;
}

bool ReadsCalls(const OutputFormat& format, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                const text::ChatTemplate& chat_template, const ProbeKind& kind) {
  const auto one = WrittenAnswer(chat_template, ProbeCalling(1, kind));
  const auto two = WrittenAnswer(chat_template, ProbeCalling(2, kind));
  // Some templates refuse a second call in a turn, and some leave it out.
  const bool single = !two.has_value() || (one.has_value() && one->answer == two->answer);
  const auto& written = single ? one : two;
  if (!written.has_value()) return false;
  const Json calls = ProbeCalls(single ? 1 : 2, {.plain = kind.plain});
  const auto read = Parse(format, tokenizer, *written);
  if (!read.has_value() || read->warnings > 0 || read->calls.size() != calls.size()) return false;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Json& function = calls[i]["function"];
    if (read->calls[i].first != function["name"]) return false;
    // Templates may write the members in another order.
    if (nlohmann::json(read->calls[i].second) != nlohmann::json(function["arguments"])) return false;
  }
  return true;
}

bool ReadsThinking(const OutputFormat& format, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                   const text::ChatTemplate& chat_template) {
  const auto written = WrittenAnswer(
      chat_template, {{"role", "assistant"}, {"content", kProbeWords}, {"reasoning_content", kProbeThought}});
  if (written.has_value()) {
    const auto read = Parse(format, tokenizer, *written);
    if (read.has_value() && read->thinking == kProbeThought && read->text.starts_with(kProbeWords))
      return true;
  }
  // Templates of models that always think open it in the prompt, and many of them drop it from the history.
  return OpensThinking(format, ThinkingPrompt(chat_template));
}

}  // namespace

FormatChoice TryFormat(const OutputFormat& format, std::shared_ptr<const text::Tokenizer> tokenizer,
                       const text::ChatTemplate& chat_template) {
  FormatChoice choice = {.format = &format, .thinking = ReadsThinking(format, tokenizer, chat_template)};
  // Arguments of all kinds first: a template that writes lists as Python does still shows the markers.
  for (const bool plain : {false, true}) {
    for (const CallStyle& style : kCallStyles) {
      if (!ReadsCalls(format, tokenizer, chat_template,
                      {.style = style, .header_ids = format.header_is_id, .plain = plain})) {
        continue;
      }
      choice.tools = true;
      choice.calls = style;
      return choice;
    }
  }
  choice.calls = StyleOf(chat_template);
  return choice;
}

FormatChoice ChooseFormat(std::shared_ptr<const text::Tokenizer> tokenizer,
                          const text::ChatTemplate& chat_template) {
  FormatChoice best = {.format = FindFormat("none"), .calls = StyleOf(chat_template)};
  for (const OutputFormat& format : Formats()) {
    const FormatChoice choice = TryFormat(format, tokenizer, chat_template);
    if (choice.tools) return choice;
    if (choice.thinking && !best.thinking) best = choice;
  }
  return best;
}

}  // namespace baton::output
