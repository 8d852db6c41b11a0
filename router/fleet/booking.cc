#include "router/fleet/booking.h"

#include <utility>

#include "router/fleet/fleet.h"

namespace baton::router::fleet {

Booking::Booking(Fleet* fleet, std::shared_ptr<Worker> decode, std::shared_ptr<Worker> prefill,
                 const Work& work, bool trial, absl::Time now)
    : fleet_(fleet),
      decode_(std::move(decode)),
      computes_(prefill == nullptr ? decode_ : std::move(prefill)),
      tokens_(work.context_tokens),
      trial_(trial) {
  decode_->Book(tokens_);
  prompt_ = computes_->BookPrompt(
      {.id = 0, .due = work.due, .tokens = work.uncached_tokens, .cached = work.cached_tokens}, now);
}

Booking::Booking(Booking&& other) noexcept { *this = std::move(other); }

Booking& Booking::operator=(Booking&& other) noexcept {
  if (this == &other) return *this;
  Release();
  fleet_ = std::exchange(other.fleet_, nullptr);
  decode_ = std::move(other.decode_);
  computes_ = std::move(other.computes_);
  prompt_ = other.prompt_;
  tokens_ = other.tokens_;
  trial_ = std::exchange(other.trial_, false);
  accepted_ = std::exchange(other.accepted_, false);
  return *this;
}

void Booking::Accepted() {
  if (decode_ == nullptr || accepted_) return;
  accepted_ = true;
  trial_ = false;
  decode_->breaker().OnAccepted();
  fleet_->Changed();
}

void Booking::Refused(absl::Time now) {
  if (decode_ == nullptr) return;
  trial_ = false;
  decode_->breaker().OnRefused(now);
  Release();
}

void Booking::FirstToken(absl::Time now) {
  if (computes_ == nullptr) return;
  computes_->UnbookPrompt(prompt_, now);
  computes_ = nullptr;
}

void Booking::Release() {
  if (decode_ == nullptr) return;
  FirstToken();
  const std::shared_ptr<Worker> decode = std::move(decode_);
  decode_ = nullptr;
  decode->Unbook(tokens_);
  if (trial_) decode->breaker().OnTrialVoid();
  // A request that ran here gave its blocks back; one that never got any is no relief.
  if (accepted_) decode->breaker().OnRelief();
  fleet_->BookingEnded();
}

}  // namespace baton::router::fleet
