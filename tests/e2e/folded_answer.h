// A stream of Chat or Generate folded to the answer that Complete would give, with something that happens in
// the middle of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "protocol/client/answer_event.h"
#include "protocol/client/answer_fold.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {

struct FoldedAnswer {
  v1::ChatUnaryResponse answer;
  grpc::Status status;
};

// `disturb` is called once so many tokens have come. Request: ChatRequest or GenerateRequest.
template <typename Request>
FoldedAnswer Fold(Fleet& fleet, const Request& request, uint32_t disturb_after = 0,
                  const std::function<void()>& disturb = nullptr) {
  protocol::AnswerFold fold;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(120)));
  using Response =
      std::conditional_t<std::is_same_v<Request, v1::ChatRequest>, v1::ChatResponse, v1::GenerateResponse>;
  std::unique_ptr<grpc::ClientReader<Response>> reader;
  if constexpr (std::is_same_v<Request, v1::ChatRequest>) {
    reader = fleet.stub().Chat(&context, request);
  } else {
    reader = fleet.stub().Generate(&context, request);
  }
  uint32_t tokens = 0;
  bool disturbed = disturb == nullptr;
  for (Response response; reader->Read(&response);) {
    fold.Add(protocol::AnswerEvent(response));
    tokens += response.delta().tokens();
    if (disturbed || tokens < disturb_after) continue;
    disturbed = true;
    disturb();
  }
  FoldedAnswer folded;
  folded.status = reader->Finish();
  folded.answer = fold.answer();
  return folded;
}

}  // namespace baton::e2e
