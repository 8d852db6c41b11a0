// Tries: whether a call that broke off is made again, how often, and when.
#pragma once

#include <grpcpp/alarm.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::gateway {

// How often a call that broke off is made again before its client hears of it, and when.
class Tries {
 public:
  Tries() = default;
  static Tries None();
  // Before the next try; none: that was the last. The first comes at once, for another router can take it.
  std::optional<absl::Duration> Next();
  // The call got on: what breaks off from here on is another break.
  void Reset() { made_ = 0; }

 private:
  int made_ = 0;
};

// Runs something later, on a thread of gRPC's; not once it is gone, nor if it is told another.
class Pause {
 public:
  void Then(absl::Duration pause, std::function<void()> what);

 private:
  std::unique_ptr<grpc::Alarm> alarm_;
};

// The call may be made again at another router: it had no answer of a router, because the connection broke or
// never was, or the router leaves. `heard`: something of the call had come.
bool AnotherMayAnswer(const absl::Status& status, bool heard);

}  // namespace baton::gateway
