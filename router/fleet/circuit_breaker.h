// CircuitBreaker: whether a decode worker that refused a request for lack of blocks is asked again. Closed:
// requests go there. Open, after a refusal: none do, until the worker reports, a request that it runs for
// this router ends, or kPatience has passed. Half-open: one request, the trial, may go; the breaker closes
// when the worker accepts it, and opens again when it refuses. So a full fleet is asked by one request per
// worker at a time. Lock-free; any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace baton::router::fleet {

class CircuitBreaker {
 public:
  static constexpr absl::Duration kPatience = absl::Milliseconds(250);

  // True if a request may go to the worker now.
  bool Allows(absl::Time now) const;
  // A request goes there. True if it is the trial of a half-open breaker.
  bool Pass();
  // The worker accepted a request: closes the breaker.
  void OnAccepted();
  // The worker refused a request for lack of blocks: opens the breaker.
  void OnRefused(absl::Time now);
  // The worker may have blocks again: half-opens an open breaker.
  void OnRelief();
  // The trial ended without being accepted or refused: another one may go.
  void OnTrialVoid();

 private:
  enum State : int { kClosed, kOpen, kHalfOpen, kTrialOut };

  std::atomic<int> state_{kClosed};
  std::atomic<int64_t> refused_at_nanos_{0};
};

}  // namespace baton::router::fleet
