// Answers as Anthropic's Messages API has them: in one piece, and as the events of a stream. Source: its API
// reference (messages, streaming). Each object is one answer's; one thread.
#pragma once

#include <string>

#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"
#include "protocol/client/answer_fold.h"

namespace baton::gateway {

// How a request wants its answer.
struct AnthropicAnswer {
  bool stream = false;
  // Blocks of thinking are shown without their text.
  bool hide_thinking = false;
  // It is told what was cleared of the conversation.
  bool tell_edits = false;
};

// The whole body.
Json AnthropicWhole(const protocol::AnswerFold& answer, const v1::Usage& usage,
                    const AnthropicAnswer& wanted);

class AnthropicEvents {
 public:
  explicit AnthropicEvents(const AnthropicAnswer& wanted) : wanted_(wanted) {}

  // Bytes of the event stream; empty: nothing to say.
  std::string Add(const v1::GenerateResponse& event);
  // The stream's end.
  std::string End(const v1::Usage& usage);

 private:
  std::string Begin(const v1::PartStart& start);
  std::string Text(const std::string& text, bool arguments);
  std::string Close();

  const AnthropicAnswer wanted_;
  std::string hidden_;  // thinking of the block that is open
  v1::Started started_;
  v1::Finished finished_;
  int blocks_ = 0;  // begun
  bool open_ = false;
  v1::PartStart::Kind kind_ = v1::PartStart::KIND_UNSPECIFIED;
};

}  // namespace baton::gateway
