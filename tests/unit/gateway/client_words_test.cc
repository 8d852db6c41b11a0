#include "gateway/mapping/client_words.h"

#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "gateway/mapping/http_status.h"

namespace baton::gateway {
namespace {

TEST(ClientWordsTest, FieldsHaveTheNamesOfTheClientsApi) {
  struct Case {
    const char* router;
    const char* chat;
    const char* completion;
    const char* responses;
    const char* messages;
  };
  const Case cases[] = {
      {"sampling.top_p: 7 is outside (0, 1]", "top_p: 7 is outside (0, 1]", "top_p: 7 is outside (0, 1]",
       "top_p: 7 is outside (0, 1]", "top_p: 7 is outside (0, 1]"},
      {"stop.stop[3]: empty", "stop[3]: empty", "stop[3]: empty", "stop[3]: empty",
       "stop_sequences[3]: empty"},
      {"stop.stop_token_ids[0]: token id 9", "stop_token_ids[0]: token id 9", "stop_token_ids[0]: token id 9",
       "stop_token_ids[0]: token id 9", "stop_token_ids[0]: token id 9"},
      {"stop.max_tokens: a prompt", "max_tokens: a prompt", "max_tokens: a prompt",
       "max_output_tokens: a prompt", "max_tokens: a prompt"},
      {"options.n: 9 is outside", "n: 9 is outside", "n: 9 is outside", "n: 9 is outside", "n: 9 is outside"},
      {"conversation.messages[3].tool_calls[0].arguments_json: no",
       "messages[3].tool_calls[0].function.arguments: no", "messages[3].tool_calls[0].arguments: no",
       "input.tool_calls[0].arguments: no", "messages.tool_calls[0].input: no"},
      {"conversation.tools[1].parameters_json: of", "tools[1].function.parameters: of",
       "tools[1].parameters: of", "tools.parameters: of", "tools[1].input_schema: of"},
      {"tool_choice.mode: MODE_REQUIRED, and conversation.tools has none",
       "tool_choice: \"required\", and tools has none", "tool_choice: \"required\", and tools has none",
       "tool_choice: \"required\", and tools has none", "tool_choice: \"any\", and tools has none"},
      {"text: empty; a prompt", "messages: empty; a prompt", "prompt: empty; a prompt",
       "input: empty; a prompt", "messages: empty; a prompt"},
      {"prompt: 9 tokens leave", "messages: 9 tokens leave", "prompt: 9 tokens leave",
       "input: 9 tokens leave", "messages: 9 tokens leave"},
      {"tool_choice.names[0]: \"f\" is none of conversation.tools", "tool_choice: \"f\" is none of tools",
       "tool_choice: \"f\" is none of tools", "tool_choice: \"f\" is none of tools",
       "tool_choice: \"f\" is none of tools"},
      {"conversation.messages[1].parts[2].cache.ttl: 7", "messages[1].content[2].cache_control.ttl: 7",
       "messages[1].content[2].cache_control.ttl: 7", "input.content[2].cache_control.ttl: 7",
       "messages.content[2].cache_control.ttl: 7"},
      {"constraint.choices[3]: empty", "structured_outputs.choice[3]: empty",
       "structured_outputs.choice[3]: empty", "structured_outputs.choice[3]: empty",
       "structured_outputs.choice[3]: empty"},
      {"output.prompt_logprobs: not", "prompt_logprobs: not", "echo: not", "prompt_logprobs: not",
       "prompt_logprobs: not"},
      {"output.top_logprobs: 99", "top_logprobs: 99", "logprobs: 99", "top_logprobs: 99", "top_logprobs: 99"},
      {"thinking.budget_tokens: 0", "thinking_token_budget: 0", "thinking_token_budget: 0",
       "thinking_token_budget: 0", "thinking.budget_tokens: 0"},
      {"constraint.json_schema: the keyword", "response_format: the keyword", "response_format: the keyword",
       "text.format: the keyword", "output_config.format: the keyword"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(InWordsOf(Api::kChat, one.router), one.chat);
    EXPECT_EQ(InWordsOf(Api::kCompletion, one.router), one.completion);
    EXPECT_EQ(InWordsOf(Api::kResponses, one.router), one.responses);
    EXPECT_EQ(InWordsOf(Api::kMessages, one.router), one.messages);
  }
}

TEST(ClientWordsTest, OtherWordsStay) {
  for (const char* const message :
       {"", "messages[0].content: absent", "output_config.format: no", "text.format.type: no", "nonstop.n: x",
        "the stop. And the output.", "context: 7", "a.sampling.b", "MODE_NONES", "conversation.messagesx",
        "model: \"options.x\" is not served here", "constraints: in /properties/output.format: no",
        "grammar: rule text: no", "at options.timeout: no", "schema: \"stop.stop\" and (sampling.x)"}) {
    for (const Api api : {Api::kChat, Api::kCompletion, Api::kResponses, Api::kMessages}) {
      EXPECT_EQ(InWordsOf(api, message), message);
    }
  }
}

TEST(ClientWordsTest, OtherEndpoints) {
  EXPECT_EQ(InWordsOf(Api::kTokens, "token_ids[3]: token id 9"), "tokens[3]: token id 9");
  EXPECT_EQ(InWordsOf(Api::kTokens, "text: empty"), "prompt: empty");
  EXPECT_EQ(InWordsOf(Api::kModerations, "texts[1]: empty"), "input[1]: empty");
}

TEST(ClientWordsTest, AnErrorKeepsItsCodeAndItsDetails) {
  const absl::Status status =
      InWordsOf(Api::kMessages, rpc::WithReason(absl::InvalidArgumentError("conversation: 9 tokens"),
                                                v1::REASON_CONTEXT_LENGTH_EXCEEDED));
  EXPECT_EQ(status.message(), "messages: 9 tokens");
  EXPECT_TRUE(ExceedsContext(status));
  EXPECT_TRUE(InWordsOf(Api::kChat, absl::OkStatus()).ok());
}

}  // namespace
}  // namespace baton::gateway
