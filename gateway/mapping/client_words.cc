#include "gateway/mapping/client_words.h"

#include <cctype>

#include "absl/strings/cord.h"

namespace baton::gateway {
namespace {

struct Words {
  std::string_view router;
  // By Api. Empty: the router's word is left out.
  std::string_view chat, completion, responses, messages;

  std::string_view In(Api api) const {
    switch (api) {
      case Api::kChat:
        return chat;
      case Api::kCompletion:
        return completion;
      case Api::kResponses:
        return responses;
      case Api::kMessages:
        return messages;
    }
    return chat;
  }
};

constexpr Words Alike(std::string_view router, std::string_view all) { return {router, all, all, all, all}; }

// The first that fits is taken, so longer ones stand before their beginnings.
constexpr Words kWords[] = {
    Alike("metadata \"authorization: Bearer KEY\" (baton commands: --api-key-file FILE)",
          "the header \"Authorization: Bearer KEY\" or \"x-api-key: KEY\""),
    // Sampling, and the end of an answer.
    Alike("stop.stop_token_ids", "stop_token_ids"),
    {"stop.stop", "stop", "stop", "stop", "stop_sequences"},
    {"stop.max_tokens", "max_tokens", "max_tokens", "max_output_tokens", "max_tokens"},
    Alike("stop.", ""),
    Alike("sampling.", ""),
    Alike("output.", ""),
    Alike("options.session_id", "prompt_cache_key"),
    Alike("options.idempotency_key", "idempotency-key"),
    Alike("options.build", "x-baton-build"),
    Alike("options.", ""),
    // Prompts. Where messages are numbered otherwise, their numbers are left out.
    Alike("token_ids.ids", "prompt"),
    Alike("token_ids", "prompt"),
    {"text:", "text:", "prompt:", "text:", "text:"},
    {"conversation.template_arguments", "chat_template_kwargs", "chat_template_kwargs",
     "chat_template_kwargs", "chat_template_kwargs"},
    {"conversation.continue_last", "continue_final_message", "continue_final_message", "input", "messages"},
    {"conversation.messages", "messages", "messages", "input", "messages"},
    Alike("conversation.tools", "tools"),
    {"conversation:", "messages:", "messages:", "input:", "messages:"},
    {"arguments_json", "function.arguments", "arguments", "arguments", "input"},
    {"parameters_json", "function.parameters", "parameters", "parameters", "input_schema"},
    // Tools, and the answer's form.
    Alike("tool_choice.mode", "tool_choice"),
    Alike("tool_choice.names", "tool_choice"),
    {"tool_choice.parallel", "parallel_tool_calls", "parallel_tool_calls", "parallel_tool_calls",
     "tool_choice.disable_parallel_tool_use"},
    Alike("MODE_NONE", "\"none\""),
    Alike("MODE_AUTO", "\"auto\""),
    {"MODE_REQUIRED", "\"required\"", "\"required\"", "\"required\"", "\"any\""},
    {"constraint.json_schema", "response_format", "response_format", "text.format", "output_config.format"},
    {"constraint.json_object", "response_format", "response_format", "text.format", "output_config.format"},
    Alike("constraint.regex", "regex"),
    Alike("constraint.lark", "structured_outputs.grammar"),
    Alike("constraint.choice", "structured_outputs.choice"),
    Alike("constraint.", "structured_outputs."),
    {"constraint:", "response_format:", "response_format:", "text.format:", "output_config.format:"},
    // The treatment of prompts that are too long.
    Alike("MODE_REFUSE", "\"refuse\""),
    Alike("MODE_CLAMP_OUTPUT", "\"clamp_output\""),
    Alike("MODE_DROP_OLDEST", "\"drop_oldest\""),
    Alike("MODE_DROP_MIDDLE", "\"drop_middle\""),
    Alike("MODE_CLEAR_TOOL_RESULTS", "\"clear_tool_results\""),
    Alike("MODE_CLEAR_THINKING", "\"clear_thinking\""),
    // Thinking.
    {"thinking.effort", "reasoning_effort", "reasoning_effort", "reasoning.effort", "output_config.effort"},
    {"thinking.budget_tokens", "thinking_token_budget", "thinking_token_budget", "thinking_token_budget",
     "thinking.budget_tokens"},
    {"thinking.show", "include_reasoning", "include_reasoning", "include_reasoning", "thinking.display"},
    {"thinking.enabled", "enable_thinking", "enable_thinking", "enable_thinking", "thinking.type"},
};

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

// The length of a number in brackets with which `text` begins; 0: there is none.
size_t IndexAt(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const size_t end = text.find_first_not_of("0123456789", 1);
  return end != std::string_view::npos && end > 1 && text[end] == ']' ? end + 1 : 0;
}

// Null: none fits there.
const Words* WordsAt(std::string_view text) {
  for (const Words& words : kWords) {
    if (!text.starts_with(words.router)) continue;
    // A word that is a path's beginning goes on with a name, and any other ends.
    const char end = words.router.back();
    const char next = words.router.size() < text.size() ? text[words.router.size()] : ' ';
    const bool ends = end == '.' ? std::islower(static_cast<unsigned char>(next)) != 0
                                 : !InName(end) || next == '.' || !InName(next);
    if (ends) return &words;
  }
  return nullptr;
}

}  // namespace

std::string InWordsOf(Api api, const std::string& text) {
  const std::string_view message = text;
  const bool renumbered = api == Api::kResponses || api == Api::kMessages;
  std::string said;
  for (size_t at = 0; at < message.size();) {
    const bool begins = at == 0 || !InName(message[at - 1]);
    const Words* const words = WordsAt(message.substr(at));  // null: none
    // These stand at a path's end: "messages[0].tool_calls[0].arguments_json".
    const bool inside =
        at > 0 && message[at - 1] == '.' && words != nullptr && words->router.ends_with("_json");
    if (words == nullptr || !(begins || inside)) {
      said += message[at++];
      continue;
    }
    said += words->In(api);
    at += words->router.size();
    if (renumbered && words->router == "conversation.messages") at += IndexAt(message.substr(at));
  }
  return said;
}

absl::Status InWordsOf(Api api, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status said(status.code(), InWordsOf(api, std::string(status.message())));
  status.ForEachPayload(
      [&said](absl::string_view type, const absl::Cord& payload) { said.SetPayload(type, payload); });
  return said;
}

}  // namespace baton::gateway
