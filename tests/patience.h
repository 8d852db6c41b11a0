// Patience: how long a test waits for other threads and processes. A wait ends when its event comes, and it
// has a limit only so that a test that hangs ends and says what it waited for. Limits are generous, because
// the machine may be busy, and sanitizers multiply them: tests/CMakeLists.txt defines BATON_PATIENCE for
// every target of its folder. A test that asserts a deadline does not scale it. Any thread may call these
// functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>

namespace baton {

// Limits are so many times longer than usual.
#ifdef BATON_PATIENCE
inline constexpr int kPatience = BATON_PATIENCE;
#else
inline constexpr int kPatience = 1;
#endif

// A sanitizer watches this test. A test that looks at numbers again and again may then look fewer times: the
// sanitizer finds in one round what it finds in all, and each takes a multiple of the time.
inline constexpr bool kSanitized = kPatience > 1;

// The limit of a wait: absl::Duration, a duration of std::chrono, or a number of milliseconds or seconds.
template <typename Duration>
constexpr Duration Scaled(Duration limit) {
  return limit * kPatience;
}

// Waits until `happened()` is true. It sleeps between looks, so that it takes no core from whom it waits for:
// a millisecond at first, and 20 ms at most. After `longest`, which it scales, it returns false, and the test
// has failed with `awaited`: a text, or a function that returns one and may tell how things are then.
template <typename Happened, typename Awaited>
bool Await(const Happened& happened, const Awaited& awaited,
           std::chrono::seconds longest = std::chrono::seconds(60)) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + Scaled(longest);
  for (milliseconds pause(1);; pause = std::min(pause + milliseconds(1), milliseconds(20))) {
    const bool last = steady_clock::now() > give_up;
    if (happened()) return true;
    if (last) break;
    std::this_thread::sleep_for(pause);
  }
  if constexpr (std::is_invocable_v<const Awaited&>) {
    ADD_FAILURE() << "awaited in vain: " << awaited();
  } else {
    ADD_FAILURE() << "awaited in vain: " << awaited;
  }
  return false;
}

}  // namespace baton
