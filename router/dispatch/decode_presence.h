// DecodePresence: whether a decode worker is up, and while none is, whether requests wait for one: for one
// that is expected, and for some time after the last one left or was expected, since processes and pods are
// replaced, and the end of a drain, or of a start that failed, is followed by another start. Plain state
// without a lock or a clock.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace baton::router {

class DecodePresence {
 public:
  // `patience`: how long a worker is waited for of which there is no word.
  explicit DecodePresence(absl::Duration patience) : patience_(patience) {}

  struct Seen {
    bool up = false;        // a decode worker is
    bool expected = false;  // one is on its way
    bool settling = false;  // a new router has not heard of all workers: it waits, and as long as that lasts
  };
  // Returns whether a worker has come while none was up, or the last one left.
  bool Observe(const Seen& seen, absl::Time now);

  bool up() const { return up_; }
  // None is up, and requests wait for one, as of the last Observe.
  bool waits() const { return waits_; }
  // Requests are taken: one is up, or one was and the next is waited for.
  bool serves() const { return up_ || (was_up_ && waits_); }

 private:
  const absl::Duration patience_;
  bool up_ = false;
  bool was_up_ = false;  // ever
  bool waits_ = false;
  std::optional<absl::Time> last_;  // that one was up or expected; none: none ever was
};

}  // namespace baton::router
