#include "common/output/probe_chat.h"

#include <string_view>
#include <utility>

namespace baton::output {

using Json = text::ChatTemplate::Json;

Json ProbeQuestion() { return {{"role", "user"}, {"content", "What is the weather?"}}; }

Json ProbeCalls(int calls, const CallStyle& style) {
  const auto call = [&style](std::string_view id, std::string_view header, Json arguments) {
    if (style.text_arguments) arguments = arguments.dump();
    return Json{{"id", std::string(style.header_ids ? header : id)},
                {"type", "function"},
                {"function", {{"name", "get_weather"}, {"arguments", std::move(arguments)}}}};
  };
  Json list = Json::array();
  list.push_back(call("aBcDeF123", "functions.get_weather:0",
                      {{"place", "Oslo \"S\""}, {"days", 3}, {"exact", true}, {"near", {"a", "b"}}}));
  if (calls > 1) list.push_back(call("gHiJkL456", "functions.get_weather:1", {{"place", "Bergen"}}));
  return list;
}

Json ProbeCalling(const Json& calls) {
  return {{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}};
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

bool RefusesObjects(const text::ChatTemplate& chat_template) {
  const auto takes = [&chat_template](const CallStyle& style) {
    const Json messages = Json::array({ProbeQuestion(), ProbeCalling(ProbeCalls(1, style))});
    return chat_template.Render({{"messages", messages}, {"tools", ProbeTools()}}).ok();
  };
  return !takes({}) && takes({.text_arguments = true});
}

}  // namespace baton::output
