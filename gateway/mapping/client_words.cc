#include "gateway/mapping/client_words.h"

#include <cctype>
#include <string_view>

#include "absl/strings/cord.h"

namespace baton::gateway {
namespace {

struct Words {
  std::string_view router;
  // In each API. Empty: the router's word is left out.
  std::string_view chat, completion, responses, messages;

  std::string_view In(Api api) const {
    switch (api) {
      case Api::kChat:
      case Api::kModerations:
        return chat;
      case Api::kCompletion:
      case Api::kTokens:
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

// Names that stand anywhere in a message. The first that fits is taken, so longer ones stand before their
// beginnings.
constexpr Words kNames[] = {
    Alike("metadata \"authorization: Bearer KEY\" (baton commands: --api-key-file FILE)",
          "the header \"Authorization: Bearer KEY\" or \"x-api-key: KEY\""),
    Alike("use Generate", "use /v1/completions"),
    Alike("use Moderate", "use /v1/moderations"),
    Alike("(ListModels)", "(GET /v1/models)"),
    // Sampling, and the end of an answer.
    Alike("stop.stop_token_ids", "stop_token_ids"),
    {"stop.stop", "stop", "stop", "stop", "stop_sequences"},
    {"stop.max_tokens", "max_tokens", "max_tokens", "max_output_tokens", "max_tokens"},
    {"output.top_logprobs", "top_logprobs", "logprobs", "top_logprobs", "top_logprobs"},
    Alike("output.logprobs", "logprobs"),
    {"output.prompt_logprobs", "prompt_logprobs", "echo", "prompt_logprobs", "prompt_logprobs"},
    Alike("options.session_id", "prompt_cache_key"),
    Alike("options.idempotency_key", "idempotency-key"),
    Alike("options.build", "x-baton-build"),
    Alike("options.cache", "cache_control"),
    // Prompts. Where messages or tools are numbered otherwise, their numbers are left out.
    Alike("token_ids.ids", "prompt"),
    Alike("conversation.template_arguments", "chat_template_kwargs"),
    {"conversation.continue_last", "continue_final_message", "continue_final_message", "input", "messages"},
    {"conversation.messages", "messages", "messages", "input", "messages"},
    Alike("conversation.tools_cache", "tools.cache_control"),
    Alike("conversation.tools", "tools"),
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
    Alike("constraint.regex", "structured_outputs.regex"),
    Alike("constraint.lark", "structured_outputs.grammar"),
    Alike("constraint.choices", "structured_outputs.choice"),
    Alike("constraint.structural_tags", "response_format"),
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

// Names that are a message's field alone: elsewhere the same words may mean another thing.
constexpr Words kFields[] = {
    Alike("stop.", ""),
    Alike("sampling.", ""),
    Alike("output.", ""),
    Alike("options.", ""),
    Alike("constraint.", "structured_outputs."),
    {"constraint:", "response_format:", "response_format:", "text.format:", "output_config.format:"},
    {"conversation:", "messages:", "prompt:", "input:", "messages:"},
    {"prompt:", "messages:", "prompt:", "input:", "messages:"},
    {"text:", "messages:", "prompt:", "input:", "messages:"},
};

// Names inside a field's path, behind a dot.
constexpr Words kInside[] = {
    {"arguments_json", "function.arguments", "arguments", "arguments", "input"},
    {"parameters_json", "function.parameters", "parameters", "parameters", "input_schema"},
    Alike("cache", "cache_control"),
    Alike("parts", "content"),
};

bool InName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/';
}

// The length of a number in brackets with which `text` begins; 0: there is none.
size_t IndexAt(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const size_t end = text.find_first_not_of("0123456789", 1);
  return end != std::string_view::npos && end > 1 && text[end] == ']' ? end + 1 : 0;
}

// A word that is a path's beginning goes on with a name, and any other ends.
bool Fits(std::string_view word, std::string_view text) {
  if (!text.starts_with(word)) return false;
  const char end = word.back(), next = word.size() < text.size() ? text[word.size()] : ' ';
  if (end == '.') return std::islower(static_cast<unsigned char>(next)) != 0;
  return !InName(end) || next == '.' || !InName(next);
}

// Null: none fits there.
const Words* WordsAt(const auto& table, std::string_view text) {
  for (const Words& words : table) {
    if (Fits(words.router, text)) return &words;
  }
  return nullptr;
}

// The client numbers these otherwise: one message of it may be several, and tools are in namespaces.
bool Renumbered(Api api, std::string_view router) {
  if (router == "tool_choice.names") return true;
  if (router == "conversation.messages") return api == Api::kResponses || api == Api::kMessages;
  return router == "conversation.tools" && api == Api::kResponses;
}

}  // namespace

std::string InWordsOf(Api api, const std::string& text) {
  std::string_view rest = text;
  if (api == Api::kTokens && Fits("token_ids", rest)) return "tokens" + text.substr(9);
  if (api == Api::kModerations && Fits("texts", rest)) return "input" + text.substr(5);
  std::string said;
  bool in_field = true, quoted = false;
  char before = ' ';
  while (!rest.empty()) {
    const bool begins = !InName(before);
    const Words* words = nullptr;  // null: the character stays
    if (begins && !quoted) words = WordsAt(kNames, rest);
    if (words == nullptr && in_field && begins) words = WordsAt(kFields, rest);
    if (words == nullptr && in_field && before == '.') words = WordsAt(kInside, rest);
    if (words == nullptr) {
      before = rest.front();
      if (before == '"') quoted = !quoted;
      // The message's field ends here.
      if (before == ' ' || (before == ':' && rest.size() > 1 && rest[1] == ' ')) in_field = false;
      said += before;
      rest.remove_prefix(1);
      continue;
    }
    said += words->In(api);
    before = words->router.back();
    if (before == ':') in_field = false;
    rest.remove_prefix(words->router.size());
    if (Renumbered(api, words->router)) rest.remove_prefix(IndexAt(rest));
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
