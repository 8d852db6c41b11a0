// AnswerFold: the stream of an answer as one message. Whoever needs an answer in one piece makes it from the
// stream here: ChatUnary and GenerateUnary, the gateway's answers without a stream, the command line. It
// checks what the stream promises: Started comes first and once, each choice ends once and says nothing
// behind its end. One answer, one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "protocol/client/limits.h"

namespace baton::protocol {

class AnswerFold {
 public:
  using Choices = google::protobuf::RepeatedPtrField<v1::AnswerChoice>;

  // An event of a choice that is not below `most` breaks the stream's promises, and its content is dropped.
  explicit AnswerFold(uint32_t most = kMaxChoices) : most_(most) {}

  // The next message of the stream.
  void Add(const v1::GenerateResponse& event);
  // All that came so far.
  const v1::ChatUnaryResponse& answer() const { return answer_; }
  const v1::Started& started() const { return answer_.started(); }
  const Choices& choices() const { return answer_.choices(); }

  // Call it for a stream that ended well. INTERNAL: it broke its promises, fewer than `least` choices came,
  // or one of them has no end.
  absl::Status CheckWhole(int least = 1) const;

 private:
  // Null: beyond the choices.
  v1::AnswerChoice* Choice(uint32_t index);
  void Breaks(std::string how);

  const uint32_t most_;
  v1::ChatUnaryResponse answer_;
  std::string broken_;  // the first broken promise; empty: none
};

// How the part began in the stream, and its text, thinking or arguments.
v1::PartStart StartOf(const v1::AnswerPart& part);
const std::string& TextOf(const v1::AnswerPart& part);

}  // namespace baton::protocol
