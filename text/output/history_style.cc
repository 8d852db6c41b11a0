#include "text/output/history_style.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/output/probe_chat.h"

namespace baton::output {
namespace {

using Json = text::ChatTemplate::Json;

constexpr char kFirstRule[] = "Answer in one word.";
constexpr char kLateRule[] = "Agents are away today.";
// A call that was cut: what is left is no JSON.
constexpr char kCutArguments[] = R"({"place": "Os)";

Json Message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

// Without what asks for an answer. Empty: the template refuses.
std::string TextOf(const text::ChatTemplate& chat_template, Json messages, bool tools) {
  Json variables = {{"messages", std::move(messages)}};
  if (tools) variables["tools"] = ProbeTools();
  return chat_template.Render(variables).value_or("");
}

// Where two texts begin to differ.
size_t Common(const std::string& a, const std::string& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// True if a system's message behind `before` is written, not as a model's or a tool's, and all before it as
// it would be before a user's: templates may write the last turn otherwise than those behind which the
// conversation goes on.
bool WritesLate(const text::ChatTemplate& chat_template, const Json& before, bool tools) {
  const auto then = [&](const char* role) {
    Json messages = before;
    messages.push_back(Message(role, kLateRule));
    return messages;
  };
  const std::string late = TextOf(chat_template, then("system"), tools);
  const size_t rule = late.rfind(kLateRule);
  const auto content = before.back()["content"].get<std::string>();
  const size_t last = late.rfind(content, rule);
  if (rule == std::string::npos || last == std::string::npos || last + content.size() > rule) return false;
  // A template may take a role that it does not know for that of a model or a tool.
  for (const char* const role : {"assistant", "tool"}) {
    if (TextOf(chat_template, then(role), tools) == late) return false;
  }
  // A template may want a user and an assistant in turns.
  std::string otherwise = TextOf(chat_template, then("user"), tools);
  if (otherwise.empty()) otherwise = TextOf(chat_template, before, tools);
  Json further = then("system");
  further.push_back(ProbeQuestion());
  const std::string followed = TextOf(chat_template, std::move(further), tools);
  return Common(late, otherwise) >= last + content.size() &&
         Common(late, followed) >= rule + sizeof kLateRule - 1;
}

}  // namespace

HistoryStyle HistoryStyleOf(const text::ChatTemplate& chat_template) {
  HistoryStyle style;
  const Json rule = Message("system", kFirstRule), question = ProbeQuestion(),
             words = Message("assistant", kProbeWords);
  // Some models have a template for chats with tools alone.
  const bool tools = TextOf(chat_template, Json::array({question}), false).empty();
  const std::string ruled = TextOf(chat_template, Json::array({rule, question}), tools);
  const auto as = [&](const char* role) {
    return TextOf(chat_template, Json::array({Message(role, kFirstRule), question}), tools);
  };
  style.system =
      ruled.find(kFirstRule) != std::string::npos && ruled != as("assistant") && ruled != as("tool");

  style.late_system =
      WritesLate(chat_template, Json::array({question}), tools) &&
      WritesLate(chat_template, Json::array({question, words}), tools) &&
      (!style.system || WritesLate(chat_template, Json::array({rule, question, words}), tools));
  const CallStyle calls = StyleOf(chat_template);
  const Json called = Json::array(
      {question,
       ProbeCalling(1, {.style = calls}),
       {{"role", "tool"}, {"tool_call_id", "aBcDeF123"}, {"name", "get_weather"}, {"content", "12 C"}}});
  if (!TextOf(chat_template, called, true).empty()) {
    style.late_system = style.late_system && WritesLate(chat_template, called, true);
  }

  Json cut = ProbeCalling(1, {.style = calls});
  cut["tool_calls"][0]["function"]["arguments"] = kCutArguments;
  style.raw_arguments =
      TextOf(chat_template, Json::array({question, std::move(cut)}), true).find(kCutArguments) !=
      std::string::npos;
  return style;
}

}  // namespace baton::output
