#include "router/dispatch/decode_presence.h"

#include <utility>

namespace baton::router {

bool DecodePresence::Observe(const Seen& seen, absl::Time now) {
  const bool changed = std::exchange(up_, seen.up) != seen.up;
  was_up_ = was_up_ || up_;
  if (changed || seen.expected) last_ = now;
  const bool recent = last_.has_value() && now - *last_ < patience_;
  waits_ = !up_ && (seen.expected || seen.settling || recent);
  return changed;
}

}  // namespace baton::router
