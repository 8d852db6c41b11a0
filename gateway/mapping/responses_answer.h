// Answers as OpenAI's Responses API has them: in one piece, and as the typed events of a stream. Thinking is
// an item of the type "reasoning" with its text, or with a summary if the request asks for one; an answer's
// text is one of the type "message", a call one of the type "function_call". Source: the API reference of
// OpenAI (responses, responses-streaming). Each object is one answer's; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"
#include "gateway/mapping/responses_request.h"
#include "protocol/client/answer_fold.h"

namespace baton::gateway {

// The whole body. `created`: seconds since 1970.
Json ResponsesWhole(const protocol::AnswerFold& answer, const v1::Usage& usage, int64_t created,
                    const ResponsesAnswer& wanted);

class ResponsesEvents {
 public:
  ResponsesEvents(int64_t created, ResponsesAnswer wanted) : created_(created), wanted_(std::move(wanted)) {}

  // Bytes of the event stream; empty: nothing to say.
  std::string Add(const v1::GenerateResponse& event);
  // The stream's end: response.completed, or response.incomplete.
  std::string End(const v1::Usage& usage);
  // Its end by an error: response.failed, or the event "error" if nothing has begun.
  std::string Fail(const absl::Status& status);

 private:
  std::string Say(const char* type, Json fields);
  std::string Begin(const v1::PartStart& start);
  std::string More(const std::string& text);
  std::string Close(bool complete);
  Json Item(const char* status) const;
  // The one part of the item under way.
  Json Part(const std::string& text) const;
  bool summarised() const { return wanted_.summary && start_.kind() == v1::PartStart::KIND_THINKING; }
  // Adds the item's place to an event's fields.
  Json At(Json fields) const;

  const int64_t created_;
  const ResponsesAnswer wanted_;
  v1::Started started_;
  v1::Finished finished_;
  int64_t said_ = 0;
  Json items_ = Json::array();  // those that are done: the last event has all of them
  // The item under way.
  bool open_ = false;
  bool plain_ = false;  // of text in which no parts are looked for
  v1::PartStart start_;
  std::string text_;
};

}  // namespace baton::gateway
