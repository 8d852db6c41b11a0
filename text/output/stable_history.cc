#include "text/output/stable_history.h"

#include <string>

#include "text/output/probe_chat.h"

namespace baton::output {
namespace {

using Json = text::ChatTemplate::Json;

Json Variables(Json messages) {
  return {{"messages", std::move(messages)}, {"tools", ProbeTools()}, {"add_generation_prompt", true}};
}

// True if the conversation with `answer` and what follows it begins with the prompt for that answer and with
// `written`, the model's text. A template that refuses a conversation has no history that could change.
bool Stays(const text::ChatTemplate& chat_template, const Json& answer, const std::string& written,
           const Json& next) {
  const auto prompt = chat_template.Render(Variables(Json::array({ProbeQuestion()})));
  Json messages = Json::array({ProbeQuestion(), answer});
  for (const Json& message : next) messages.push_back(message);
  const auto then = chat_template.Render(Variables(std::move(messages)));
  return !prompt.ok() || !then.ok() || then->starts_with(*prompt + written);
}

// The same for an answer that the model writes as the template writes the last turn. Where the template does
// not even keep the prompt before the answer, nothing is written.
bool StaysAsWritten(const text::ChatTemplate& chat_template, const Json& answer, const Json& next) {
  const auto written = WrittenAnswer(chat_template, answer);
  return Stays(chat_template, answer, written.has_value() ? written->answer : "", next);
}

}  // namespace

std::vector<std::string_view> UnstableHistory(const FormatChoice& choice,
                                              const text::ChatTemplate& chat_template) {
  std::vector<std::string_view> unstable;
  const Json question = {{"role", "user"}, {"content", "And tomorrow?"}};
  const Json words = {{"role", "assistant"}, {"content", kProbeWords}};
  if (!Stays(chat_template, words, kProbeWords, Json::array({question}))) unstable.push_back("text");
  if (choice.thinking) {
    Json answer = words;
    answer["reasoning_content"] = kProbeThought;
    if (!StaysAsWritten(chat_template, answer, Json::array({question}))) unstable.push_back("thinking");
  }
  if (choice.tools) {
    const ProbeKind kind = {.style = choice.calls, .header_ids = choice.format->header_is_id};
    const Json answer = ProbeCalling(1, kind);
    const Json result = {{"role", "tool"},
                         {"tool_call_id", answer["tool_calls"][0]["id"]},
                         {"name", "get_weather"},
                         {"content", "12 C"}};
    if (!StaysAsWritten(chat_template, answer, Json::array({result}))) unstable.push_back("tool_calls");
  }
  return unstable;
}

}  // namespace baton::output
