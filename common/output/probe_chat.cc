#include "common/output/probe_chat.h"

#include <utility>

namespace baton::output {

using Json = text::ChatTemplate::Json;

Json ProbeQuestion() { return {{"role", "user"}, {"content", "What is the weather?"}}; }

Json ProbeCalls(int calls) {
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

std::optional<std::string> WrittenAnswer(const text::ChatTemplate& chat_template, const Json& answer) {
  const Json question = ProbeQuestion();
  Json asked = {
      {"messages", Json::array({question})}, {"tools", ProbeTools()}, {"add_generation_prompt", true}};
  Json answered = {{"messages", Json::array({question, answer})}, {"tools", ProbeTools()}};
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

}  // namespace baton::output
