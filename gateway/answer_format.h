// AnswerFormat: how OpenAI and Anthropic write an answer, an error and a stream: what an AnswerCall asks of
// the mappings. One for each answer; on the HTTP server's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "gateway/http/exchange.h"
#include "gateway/mapping/anthropic_request.h"
#include "gateway/mapping/client_words.h"
#include "gateway/mapping/json_object.h"
#include "gateway/mapping/openai_answer.h"
#include "gateway/mapping/responses_request.h"
#include "protocol/client/answer_fold.h"

namespace baton::gateway {

// How a vendor writes an answer. Either `whole` or both of the others.
struct AnswerFormat {
  // In whose words the router's errors are put (InWordsOf), before they are written.
  Api api = Api::kChat;
  std::function<std::string(const protocol::AnswerFold&, const v1::Usage&)> whole;
  std::function<std::string(const v1::GenerateResponse&)> piece;
  std::function<std::string(const v1::Usage&)> last;
  // The body of an answer that failed, and its event in the middle of a stream; both may name the request.
  std::function<std::string(const absl::Status&, const std::string& request_id)> error;
  std::function<std::string(const absl::Status&, const std::string& request_id)> error_event;
  int (*status_of)(const absl::Status&) = nullptr;
  // Names the request as long as the router has not.
  std::string request_id;
  // Headers of every answer.
  http::Headers headers;
};

// The names by which OpenAI's and Anthropic's clients know what to call a request in a report.
inline constexpr const char* kRequestIdHeaders[] = {"x-request-id", "request-id"};

// A name for a request that no router has seen.
std::string NewRequestId();

// Formats of answers that can only fail: errors in the vendor's words.
AnswerFormat OpenAiErrors(Api api, const std::string& request_id);
AnswerFormat AnthropicErrors(const std::string& request_id);

AnswerFormat FormatOf(OpenAiKind kind, const OpenAiAnswer& wanted, const std::string& request_id);
AnswerFormat FormatOf(const ResponsesAnswer& wanted, const std::string& request_id);
AnswerFormat FormatOf(const AnthropicMessages& wanted, const std::string& request_id);

// A body of JSON.
std::string Shown(const Json& json);

// The whole answer is an error.
http::Response ErrorResponse(const absl::Status& status, const AnswerFormat& format);

// The answer to what is no request of either API, in the words of the one at whose path it came.
http::Response Refusal(int status, std::string_view path, const std::string& why);

}  // namespace baton::gateway
