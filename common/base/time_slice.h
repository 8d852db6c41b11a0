// The time slice of a thread: how long the kernel lets it run before another may have its core. A thread that
// wakes to move a message asks for a short one, so that it runs at once although others compute; a thread
// that computes keeps the kernel's. It changes when a thread runs, not how much. Inherited by threads that it
// starts. Any thread, for itself.
#pragma once

#include "absl/time/time.h"

namespace baton {

// Of threads that only move messages.
inline constexpr absl::Duration kMessengerSlice = absl::Microseconds(100);

// Sets the calling thread's; zero: the kernel's own. The kernel keeps it within 0.1 and 100 ms. Does nothing
// on Linux before 6.12, which knows none, and where the process may not choose.
void SetTimeSlice(absl::Duration slice);
// The calling thread's; zero where there is none.
absl::Duration TimeSlice();

}  // namespace baton
