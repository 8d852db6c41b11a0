#include "router/fleet/circuit_breaker.h"

namespace baton::router::fleet {

bool CircuitBreaker::Allows(absl::Time now) const {
  switch (state_.load()) {
    case kClosed:
    case kHalfOpen:
      return true;
    case kOpen:
      return now - absl::FromUnixNanos(refused_at_nanos_.load()) >= kPatience;
    default:
      return false;
  }
}

bool CircuitBreaker::Pass() {
  int state = state_.load();
  while (state == kHalfOpen || state == kOpen) {
    if (state_.compare_exchange_weak(state, kTrialOut)) return true;
  }
  return false;
}

void CircuitBreaker::OnAccepted() { state_.store(kClosed); }

void CircuitBreaker::OnRefused(absl::Time now) {
  refused_at_nanos_.store(absl::ToUnixNanos(now));
  state_.store(kOpen);
}

void CircuitBreaker::OnRelief() {
  int open = kOpen;
  state_.compare_exchange_strong(open, kHalfOpen);
}

void CircuitBreaker::OnTrialVoid() {
  int out = kTrialOut;
  state_.compare_exchange_strong(out, kHalfOpen);
}

}  // namespace baton::router::fleet
