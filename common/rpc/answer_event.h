// AnswerEvent: a message of an answer's stream, whichever method sends it. ChatResponse and GenerateResponse
// have the same fields (public_api_test.cc sees to it), so that what reads answers knows one of them. Pure
// functions, any thread.
#pragma once

#include <utility>

#include "baton/v1/inference.pb.h"

namespace baton::rpc {

inline v1::GenerateResponse AnswerEvent(v1::GenerateResponse event) { return event; }

inline v1::GenerateResponse AnswerEvent(v1::ChatResponse event) {
  v1::GenerateResponse same;
  switch (event.event_case()) {
    case v1::ChatResponse::kStarted:
      *same.mutable_started() = std::move(*event.mutable_started());
      break;
    case v1::ChatResponse::kDelta:
      *same.mutable_delta() = std::move(*event.mutable_delta());
      break;
    case v1::ChatResponse::kFinished:
      *same.mutable_finished() = std::move(*event.mutable_finished());
      break;
    case v1::ChatResponse::kProgress:
      *same.mutable_progress() = std::move(*event.mutable_progress());
      break;
    case v1::ChatResponse::EVENT_NOT_SET:
      break;
  }
  return same;
}

}  // namespace baton::rpc
