// AnswerEvent: a message of an answer's stream, whichever method sends it. ChatResponse, ResumeResponse and
// GenerateResponse have the same fields (public_api_test.cc sees to it), so that what reads answers knows one
// of them. Pure functions, any thread.
#pragma once

#include <utility>

#include "baton/v1/inference.pb.h"

namespace baton::protocol {

inline v1::GenerateResponse AnswerEvent(v1::GenerateResponse event) { return event; }

// ChatResponse and ResumeResponse.
template <typename Event>
v1::GenerateResponse AnswerEvent(Event event) {
  v1::GenerateResponse same;
  switch (event.event_case()) {
    case Event::kStarted:
      *same.mutable_started() = std::move(*event.mutable_started());
      break;
    case Event::kDelta:
      *same.mutable_delta() = std::move(*event.mutable_delta());
      break;
    case Event::kFinished:
      *same.mutable_finished() = std::move(*event.mutable_finished());
      break;
    case Event::kProgress:
      *same.mutable_progress() = std::move(*event.mutable_progress());
      break;
    case Event::EVENT_NOT_SET:
      break;
  }
  return same;
}

}  // namespace baton::protocol
