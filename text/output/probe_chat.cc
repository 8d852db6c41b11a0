#include "text/output/probe_chat.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace baton::output {

using Json = text::ChatTemplate::Json;

// A word of the first call that nothing else in a probe has.
constexpr char kProbePlace[] = "Oslo";

Json ProbeQuestion() { return {{"role", "user"}, {"content", "What is the weather?"}}; }

Json ProbeCalls(int calls, const ProbeKind& kind) {
  const auto call = [&kind](std::string_view id, std::string_view header, Json arguments) {
    if (kind.style.text_arguments) arguments = arguments.dump();
    return Json{{"id", std::string(kind.header_ids ? header : id)},
                {"type", "function"},
                {"function", {{"name", "get_weather"}, {"arguments", std::move(arguments)}}}};
  };
  Json arguments = {{"place", kProbePlace + std::string(" \"S\"")}, {"days", 3}};
  if (!kind.plain) arguments.update({{"exact", true}, {"near", {"a", "b"}}});
  Json list = Json::array();
  list.push_back(call("aBcDeF123", "functions.get_weather:0", std::move(arguments)));
  if (calls > 1) list.push_back(call("gHiJkL456", "functions.get_weather:1", {{"place", "Bergen"}}));
  return list;
}

Json ProbeCalling(int calls, const ProbeKind& kind) {
  Json message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", ProbeCalls(calls, kind)}};
  if (kind.style.none_content) message["content"] = nullptr;
  return message;
}

Json ProbeTools() {
  Json properties = {{"place", {{"type", "string"}}},
                     {"days", {{"type", "integer"}}},
                     {"exact", {{"type", "boolean"}}},
                     {"near", {{"type", "array"}}}};
  Json function = {{"name", "get_weather"},
                   {"description", "Weather"},
                   {"parameters", {{"type", "object"}, {"properties", properties}}}};
  return Json::array({{{"type", "function"}, {"function", function}}});
}

std::optional<Written> WrittenAnswer(const text::ChatTemplate& chat_template, const Json& answer) {
  const Json question = ProbeQuestion();
  Json asked = {
      {"messages", Json::array({question})}, {"tools", ProbeTools()}, {"add_generation_prompt", true}};
  Json answered = {{"messages", Json::array({question, answer})}, {"tools", ProbeTools()}};
  const auto prompt = chat_template.Render(asked);
  const auto whole = chat_template.Render(answered);
  if (!prompt.ok() || !whole.ok()) return std::nullopt;
  const auto split = [&whole](const std::string& before) {
    return Written{.before = before, .answer = whole->substr(before.size())};
  };
  if (whole->starts_with(*prompt)) return split(*prompt);
  // Some templates open thinking in the prompt and not in the history, or the other way round.
  asked["add_generation_prompt"] = false;
  const auto history = chat_template.Render(asked);
  if (!history.ok() || !whole->starts_with(*history)) return std::nullopt;
  return split(*history);
}

std::string ThinkingPrompt(const text::ChatTemplate& chat_template) {
  const auto prompt = chat_template.Render({{"messages", Json::array({ProbeQuestion()})},
                                            {"tools", ProbeTools()},
                                            {"enable_thinking", true},
                                            {"thinking", true},
                                            {"add_generation_prompt", true}});
  return prompt.ok() ? *prompt : "";
}

CallStyle StyleOf(const text::ChatTemplate& chat_template) {
  const auto writes = [&chat_template](const CallStyle& style) {
    const Json messages = Json::array({ProbeQuestion(), ProbeCalling(1, {.style = style})});
    const auto text = chat_template.Render({{"messages", messages}, {"tools", ProbeTools()}});
    return text.ok() && text->find(kProbePlace) != std::string::npos;
  };
  const auto* const found = std::ranges::find_if(kCallStyles, writes);
  return found == std::end(kCallStyles) ? CallStyle() : *found;
}

}  // namespace baton::output
