#include "router/dispatch/waiting_choices.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::router {

using admission::EntryId;

// So long before its deadline could not be met any more, a choice presses.
constexpr absl::Duration kPressing = absl::Milliseconds(100);

absl::Time WaitingChoice::presses() const {
  if (begun) return absl::InfinitePast();
  return request->deadline < absl::InfiniteFuture() ? expires - kPressing : absl::InfiniteFuture();
}

admission::Refusal WhyExpired(const WaitingChoice& waiting, absl::Time now, absl::Duration max_wait,
                              absl::Duration default_ttft, absl::Duration retry) {
  if (waiting.expires >= waiting.came + max_wait) {
    return {
        admission::Reason::kMaxWait,
        fmt::format("no decode worker had room for {} s; try again later", absl::ToDoubleSeconds(max_wait)),
        retry};
  }
  if (waiting.request->deadline == absl::InfiniteFuture()) {
    return {
        admission::Reason::kDeadline,
        fmt::format("no worker could give the first token within {:.3f} s, which is what a request without a "
                    "deadline may take here: set one that allows more time, or try again later",
                    absl::ToDoubleSeconds(default_ttft)),
        retry};
  }
  return {admission::Reason::kDeadline,
          fmt::format(
              "the deadline is in {:.3f} s, and even a worker that had room now would need longer for the "
              "first token: allow more time or try again later",
              absl::ToDoubleSeconds(waiting.request->deadline - now)),
          retry};
}

void WaitingChoices::Add(EntryId id, WaitingChoice waiting) {
  if (const absl::Time presses = waiting.presses(); presses < absl::InfiniteFuture())
    pressing_.emplace(presses, id);
  if (waiting.request->waits != nullptr) ++told_;
  choices_.emplace(id, std::move(waiting));
}

WaitingChoice WaitingChoices::Take(EntryId id) {
  WaitingChoice waiting = std::move(choices_.extract(id).mapped());
  pressing_.erase({waiting.presses(), id});
  if (waiting.request->waits != nullptr) --told_;
  return waiting;
}

bool WaitingChoices::WaitOn(EntryId id, absl::Time now, absl::Duration max_wait) {
  WaitingChoice& waiting = choices_.at(id);
  const absl::Time end = std::min(waiting.came + max_wait, waiting.request->deadline);
  if (end <= now) return false;
  pressing_.erase({waiting.presses(), id});
  waiting.expires = end;
  waiting.patient = true;
  if (const absl::Time presses = waiting.presses(); presses < absl::InfiniteFuture())
    pressing_.emplace(presses, id);
  return true;
}

std::vector<EntryId> WaitingChoices::Pressing(absl::Time now) const {
  std::vector<EntryId> pressing;
  for (const auto& [since, id] : pressing_) {
    if (since > now) break;
    pressing.push_back(id);
  }
  return pressing;
}

}  // namespace baton::router
