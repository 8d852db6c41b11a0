// Answers as OpenAI's HTTP API has them: in one piece, and as the chunks of a stream. Source: its API
// reference (chat.completion, chat.completion.chunk, text_completion). The fields `reasoning_content` and
// `stop_reason` are those of vLLM's server. Each object is one answer's; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"
#include "gateway/mapping/openai_request.h"
#include "protocol/client/answer_fold.h"

namespace baton::gateway {

enum class OpenAiKind { kChat, kCompletion };

// The details of an answer's tokens: thinking, and drafted ones if there are some.
Json CompletionDetails(const v1::Usage& usage);
// {"prompt_tokens", "completion_tokens", "total_tokens", details}.
Json OpenAiUsage(const v1::Usage& usage);

// The whole body. `created`: seconds since 1970.
Json OpenAiWhole(OpenAiKind kind, const protocol::AnswerFold& answer, const v1::Usage& usage, int64_t created,
                 const OpenAiAnswer& wanted);

class OpenAiChunks {
 public:
  OpenAiChunks(OpenAiKind kind, int64_t created, OpenAiAnswer wanted)
      : kind_(kind), created_(created), wanted_(std::move(wanted)) {}

  // Bytes of the event stream; empty: nothing to say.
  std::string Add(const v1::GenerateResponse& event);
  // The stream's end: the usage if it is asked for, and [DONE].
  std::string End(const v1::Usage& usage);

 private:
  struct Choice {
    bool begun = false;
    bool prompt_told = false;  // in part
    bool thinking = false;     // the part under way is
    int calls = 0;
    int64_t offset = 0;  // bytes of the text that its log probabilities have told of
  };

  // `finished`: of the choice that ends with it, for what a whole answer says beside its choices.
  std::string Chunk(Json choices, const v1::Finished* finished = nullptr) const;
  Json Frame() const;

  const OpenAiKind kind_;
  const int64_t created_;
  const OpenAiAnswer wanted_;
  v1::Started started_;
  std::map<uint32_t, Choice> choices_;
};

}  // namespace baton::gateway
