#include "gateway/answer_format.h"

#include <memory>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gateway/mapping/anthropic_answer.h"
#include "gateway/mapping/http_status.h"
#include "gateway/mapping/responses_answer.h"
#include "gateway/mapping/sse.h"

namespace baton::gateway {
namespace {

int64_t Now() { return absl::ToUnixSeconds(absl::Now()); }

}  // namespace

std::string Shown(const Json& json) { return Dump(json) + "\n"; }

std::string NewRequestId() {
  static thread_local absl::BitGen random;
  return absl::StrCat("req_", absl::Hex(random(), absl::kZeroPad16));
}

AnswerFormat OpenAiErrors(Api api, const std::string& request_id) {
  AnswerFormat format{.api = api};
  format.error = [](const absl::Status& status, const std::string&) { return Shown(OpenAiError(status)); };
  format.error_event = [](const absl::Status& status, const std::string&) {
    return Event(OpenAiError(status));
  };
  format.status_of = HttpStatusOf;
  format.request_id = request_id;
  return format;
}

AnswerFormat AnthropicErrors(const std::string& request_id) {
  AnswerFormat format{.api = Api::kMessages};
  format.error = [](const absl::Status& status, const std::string& id) {
    return Shown(AnthropicError(status, id));
  };
  format.error_event = [](const absl::Status& status, const std::string& id) {
    return Event("error", AnthropicError(status, id));
  };
  format.status_of = AnthropicStatusOf;
  format.request_id = request_id;
  return format;
}

http::Response Refusal(int status, std::string_view path, const std::string& why) {
  const std::string id = NewRequestId();
  http::Response response{.status = status};
  response.body = Shown(path.starts_with("/v1/messages") ? AnthropicRefusal(status, why, id)
                                                         : OpenAiRefusal(status, why));
  for (const char* const name : kRequestIdHeaders) response.headers.emplace_back(name, id);
  return response;
}

AnswerFormat FormatOf(OpenAiKind kind, const OpenAiAnswer& wanted, const std::string& request_id) {
  AnswerFormat format = OpenAiErrors(kind == OpenAiKind::kChat ? Api::kChat : Api::kCompletion, request_id);
  if (wanted.stream) {
    const auto chunks = std::make_shared<OpenAiChunks>(kind, Now(), wanted);
    format.piece = [chunks](const v1::GenerateResponse& event) { return chunks->Add(event); };
    format.last = [chunks](const v1::Usage& usage) { return chunks->End(usage); };
  } else {
    format.whole = [kind, wanted, created = Now()](const protocol::AnswerFold& answer,
                                                   const v1::Usage& usage) {
      return Shown(OpenAiWhole(kind, answer, usage, created, wanted));
    };
  }
  return format;
}

AnswerFormat FormatOf(const ResponsesAnswer& wanted, const std::string& request_id) {
  AnswerFormat format = OpenAiErrors(Api::kResponses, request_id);
  if (wanted.stream) {
    const auto events = std::make_shared<ResponsesEvents>(Now(), wanted);
    format.piece = [events](const v1::GenerateResponse& event) { return events->Add(event); };
    format.last = [events](const v1::Usage& usage) { return events->End(usage); };
    format.error_event = [events](const absl::Status& status, const std::string&) {
      return events->Fail(status);
    };
  } else {
    format.whole = [wanted, created = Now()](const protocol::AnswerFold& answer, const v1::Usage& usage) {
      return Shown(ResponsesWhole(answer, usage, created, wanted));
    };
  }
  return format;
}

AnswerFormat FormatOf(const AnthropicMessages& wanted, const std::string& request_id) {
  AnswerFormat format = AnthropicErrors(request_id);
  if (wanted.answer.stream) {
    const auto events = std::make_shared<AnthropicEvents>(wanted.answer);
    format.piece = [events](const v1::GenerateResponse& event) { return events->Add(event); };
    format.last = [events](const v1::Usage& usage) { return events->End(usage); };
  } else {
    format.whole = [show = wanted.answer](const protocol::AnswerFold& answer, const v1::Usage& usage) {
      return Shown(AnthropicWhole(answer, usage, show));
    };
  }
  return format;
}

http::Response ErrorResponse(const absl::Status& status, const AnswerFormat& format) {
  http::Response response{.status = format.status_of(status),
                          .headers = format.headers,
                          .body = format.error(status, format.request_id)};
  for (const char* const name : kRequestIdHeaders) response.headers.emplace_back(name, format.request_id);
  if (const auto retry = RetryAfterOf(status); retry.has_value()) {
    response.headers.emplace_back("Retry-After", std::to_string(retry->seconds));
    response.headers.emplace_back("retry-after-ms", std::to_string(retry->milliseconds));
  }
  return response;
}

}  // namespace baton::gateway
