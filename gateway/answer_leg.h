// AnswerLeg: one prompt's part of an HTTP answer, over all calls that are made for it: what of it the client
// has, and how it goes on at another router where a call broke off (Resume). One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "gateway/routers.h"
#include "gateway/tries.h"

namespace baton::gateway {

// Request: ChatRequest or GenerateRequest.
template <typename Request>
class AnswerLeg {
 public:
  // Adds to the request what it takes to go on after a break and be charged once: a key and a seed, unless
  // the client gave them. What is told of a prompt goes with no key, and such an answer is not gone on with.
  AnswerLeg(Request request, uint32_t choices);

  const std::shared_ptr<const Request>& request() const { return request_; }
  // Its request_id is empty until it has come.
  const v1::Started& started() const { return started_; }
  bool began() const { return !started_.request_id().empty(); }
  // Asks for what lies behind the tokens that have come. It has to have begun.
  std::shared_ptr<const v1::ResumeRequest> Rest() const;

  // A call begins: its router, another than the last one's if there is one. Null: none is known.
  Router* PickRouter(Routers& routers);
  // Counts the event as the client's. False: the client has it from an earlier call.
  bool Count(const v1::GenerateResponse& event);
  // The call has ended.
  void CallEnded();
  // It ended with this error: how long until it is made again; none: that is the answer's end.
  std::optional<absl::Duration> TryAgain(const absl::Status& status);
  // Runs `what` after that time, unless the leg is gone by then.
  void After(absl::Duration pause, std::function<void()> what) { pause_.Then(pause, std::move(what)); }
  // The error that the client is told, where `status` ended it.
  const absl::Status& Told(const absl::Status& status) const;

 private:
  std::shared_ptr<const Request> request_;
  std::shared_ptr<Router> router_;  // of the call under way
  std::string avoid_;               // where the last one was
  bool heard_ = false;              // something of that call has come
  Tries tries_;
  Pause pause_;
  absl::Status broke_;  // how the last call broke off; OK: none has, or it was got over
  v1::Started started_;
  // By choice: tokens that have come, and whether its end has.
  std::vector<uint32_t> tokens_;
  std::vector<bool> finished_;
};

}  // namespace baton::gateway
