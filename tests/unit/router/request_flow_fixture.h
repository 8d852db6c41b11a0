// The fixture of RequestFlow's tests: short names of its actions, events of a worker, and a fleet of two
// decode workers whose bookings are counted.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "router/api/request_flow.h"
#include "tests/unit/router/two_decode_workers.h"

namespace baton::router {

// Short names of actions, in order: "withdraw hangup:0 finish:CANCELLED".
inline std::string Names(const Actions& actions) {
  struct Namer {
    std::string operator()(const Submit&) { return "submit"; }
    std::string operator()(const Requeue& requeue) { return "requeue:" + std::to_string(requeue.choice); }
    std::string operator()(const Withdraw& withdraw) {
      return withdraw.choice < 0 ? "withdraw" : "withdraw:" + std::to_string(withdraw.choice);
    }
    std::string operator()(const Judge& judge) { return "judge:" + std::to_string(judge.choice); }
    std::string operator()(const StopJudging&) { return "stop"; }
    std::string operator()(const Dial& dial) {
      return "dial:" + std::to_string(dial.choice) + "." + std::to_string(dial.attempt);
    }
    std::string operator()(const ReadNext& next) { return "read:" + std::to_string(next.choice); }
    std::string operator()(const HangUp& hang_up) { return "hangup:" + std::to_string(hang_up.choice); }
    std::string operator()(const Write& write) {
      if (write.response.has_started()) return "write:started";
      if (write.response.has_progress()) return "write:progress";
      if (write.response.has_delta()) return "write:" + write.response.delta().text();
      return "write:finished" + std::to_string(write.response.finished().choice());
    }
    std::string operator()(const WriteLast& last) {
      return "last:finished" + std::to_string(last.response.finished().choice());
    }
    std::string operator()(const Break& break_off) {
      return "break:" + absl::StatusCodeToString(break_off.status.code());
    }
    std::string operator()(const Finish& finish) {
      return "finish:" + absl::StatusCodeToString(finish.status.code());
    }
  };
  std::string names;
  for (const Action& action : actions) {
    if (!names.empty()) names += " ";
    names += std::visit(Namer(), action);
  }
  return names;
}

template <typename T>
const T& Only(const Actions& actions) {
  const T* found = nullptr;
  for (const Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found = one;
  }
  BATON_CHECK(found != nullptr) << Names(actions);
  return *found;
}

inline baton::fleet::v1::DecodeEvent Accepted() {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_accepted();
  return event;
}

inline baton::fleet::v1::DecodeEvent Token(const std::string& text, int32_t id = 7) {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_delta()->set_text(text);
  event.mutable_delta()->set_tokens(1);
  event.mutable_delta()->add_token_ids(id);
  return event;
}

inline baton::fleet::v1::DecodeEvent Done() {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  return event;
}

class RequestFlowTest : public ::testing::Test, protected TwoDecodeWorkers {
 protected:
  RequestFlowTest() {
    for (int endpoint : {0, 1}) Up(endpoint);
  }

  void Make(absl::Time deadline = absl::InfiniteFuture()) {
    flow_ = std::make_unique<RequestFlow>(RequestFlow::Options{.request_id = "r",
                                                               .router_id = "me",
                                                               .max_attempts = 2,
                                                               .arrival = clock_.Now(),
                                                               .deadline = deadline,
                                                               .client_stall = absl::Seconds(30),
                                                               .sessions = &sessions_},
                                          clock_, probe_);
  }

  Prepared Request(int choices = 1) {
    Prepared prepared;
    prepared.request.add_token_ids(1);
    prepared.request.add_token_ids(2);
    prepared.model = &model_;
    prepared.choices = choices;
    prepared.seed = 100;
    return prepared;
  }

  Placement Place(int endpoint) {
    Placement placement;
    const auto worker = fleet_.view()->decode[endpoint];
    placement.decode = worker;
    placement.booking = fleet_.Book(worker, nullptr, 2, clock_.Now());
    return placement;
  }

  int64_t Bookings() {
    int64_t all = 0;
    const auto view = fleet_.view();
    for (const auto& worker : view->decode) all += worker->BookedRequests();
    return all;
  }

  // One choice, accepted, Started with the client.
  void Run() {
    Make();
    EXPECT_EQ(Names(flow_->OnPrepared(Request())), "submit");
    EXPECT_EQ(Names(flow_->OnPlaced(0, Place(0))), "dial:0.1");
    EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Accepted())), "write:started read:0");
  }

  const ServedModel model_{.name = "m"};
  FakeClock clock_;
  SessionPrompts sessions_;
  std::unique_ptr<RequestFlow> flow_;
};

}  // namespace baton::router
