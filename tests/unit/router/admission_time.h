// The clock of admission's tests.
#pragma once

#include "absl/time/time.h"

namespace baton::router::admission {

inline absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

}  // namespace baton::router::admission
