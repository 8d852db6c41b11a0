#include "common/output/format_choice.h"

#include <optional>
#include <string>
#include <vector>

#include "common/output/parser.h"
#include "common/text/detokenizer.h"
#include "nlohmann/json.hpp"

namespace baton::output {
namespace {

using Json = text::ChatTemplate::Json;

constexpr char kThought[] = "First the one place, then the other.";
constexpr char kWords[] = "Here it is.";

// Two calls, with arguments of all types and a name of the kind that tools have.
Json Probe(int calls) {
  const auto call = [](const char* id, Json arguments) {
    return Json{{"id", id},
                {"type", "function"},
                {"function", {{"name", "get_weather"}, {"arguments", std::move(arguments)}}}};
  };
  Json list = Json::array();
  list.push_back(
      call("aBcDeF123", {{"place", "Oslo \"S\""}, {"days", 3}, {"exact", true}, {"near", {"a", "b"}}}));
  if (calls > 1) list.push_back(call("gHiJkL456", {{"place", "Bergen"}}));
  return list;
}

Json Tools() {
  Json properties = {{"place", {{"type", "string"}}},
                     {"days", {{"type", "integer"}}},
                     {"exact", {{"type", "boolean"}}},
                     {"near", {{"type", "array"}}}};
  Json function = {{"name", "get_weather"},
                   {"description", "Weather"},
                   {"parameters", {{"type", "object"}, {"properties", properties}}}};
  return Json::array({{{"type", "function"}, {"function", function}}});
}

std::string TypeOf(std::string_view, std::string_view parameter) {
  if (parameter == "place") return "string";
  if (parameter == "days") return "integer";
  return parameter == "exact" ? "boolean" : "array";
}

// What the template writes for `answer`, after the prompt that asks for it. Nothing if it refuses, or writes
// the conversation before it in another way.
std::optional<std::string> Written(const text::ChatTemplate& chat_template, const Json& answer) {
  const Json question = {{"role", "user"}, {"content", "What is the weather?"}};
  Json asked = {{"messages", Json::array({question})}, {"tools", Tools()}, {"add_generation_prompt", true}};
  Json answered = {{"messages", Json::array({question, answer})}, {"tools", Tools()}};
  const auto prompt = chat_template.Render(asked);
  const auto whole = chat_template.Render(answered);
  if (!prompt.ok() || !whole.ok()) return std::nullopt;
  if (whole->starts_with(*prompt)) return whole->substr(prompt->size());
  // Some templates open thinking in the prompt and not in the history, or the other way round.
  asked["add_generation_prompt"] = false;
  const auto history = chat_template.Render(asked);
  if (!history.ok() || !whole->starts_with(*history)) return std::nullopt;
  return whole->substr(history->size());
}

struct Read {
  std::string text, thinking;
  std::vector<std::pair<std::string, Json>> calls;
  int warnings = 0;
};

std::optional<Read> Parse(const OutputFormat& format, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                          const std::string& written) {
  const auto tokens = tokenizer->Encode(written, /*add_special_tokens=*/false);
  if (!tokens.ok()) return std::nullopt;
  text::Detokenizer detokenizer(tokenizer, /*keep_special=*/false);
  const MarkerTable markers(format, *tokenizer);
  Parser parser(markers, {.type = TypeOf});
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
                const text::ChatTemplate& chat_template) {
  for (const int count : {2, 1}) {  // some templates take one call in a turn
    const Json calls = Probe(count);
    const auto written =
        Written(chat_template, {{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}});
    if (!written.has_value()) continue;
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
  return false;
}

bool ReadsThinking(const OutputFormat& format, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                   const text::ChatTemplate& chat_template) {
  const auto written =
      Written(chat_template, {{"role", "assistant"}, {"content", kWords}, {"reasoning_content", kThought}});
  if (!written.has_value()) return false;
  const auto read = Parse(format, tokenizer, *written);
  return read.has_value() && read->thinking == kThought && read->text.starts_with(kWords);
}

}  // namespace

FormatChoice TryFormat(const OutputFormat& format, std::shared_ptr<const text::Tokenizer> tokenizer,
                       const text::ChatTemplate& chat_template) {
  return {.format = &format,
          .tools = ReadsCalls(format, tokenizer, chat_template),
          .thinking = ReadsThinking(format, tokenizer, chat_template)};
}

FormatChoice ChooseFormat(std::shared_ptr<const text::Tokenizer> tokenizer,
                          const text::ChatTemplate& chat_template) {
  FormatChoice best = {.format = FindFormat("none")};
  for (const OutputFormat& format : Formats()) {
    const FormatChoice choice = TryFormat(format, tokenizer, chat_template);
    if (choice.tools) return choice;
    if (choice.thinking && !best.thinking) best = choice;
  }
  return best;
}

}  // namespace baton::output
