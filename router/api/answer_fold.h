// AnswerFold: the stream of an answer as one message. ChatUnary and GenerateUnary answer with what Chat and
// Generate stream, and this is the only way from the one to the other. One answer, one thread at a time.
#pragma once

#include "baton/v1/inference.pb.h"

namespace baton::router {

class AnswerFold {
 public:
  // The next message of the stream.
  void Add(const v1::GenerateResponse& response);
  // What came so far.
  const v1::ChatUnaryResponse& answer() const { return answer_; }

  using Parts = google::protobuf::RepeatedPtrField<v1::AnswerPart>;
  // The next event of a choice's parts.
  static void AddPart(const v1::PartEvent& event, Parts* parts);

 private:
  v1::AnswerChoice& Choice(uint32_t index);

  v1::ChatUnaryResponse answer_;
};

}  // namespace baton::router
