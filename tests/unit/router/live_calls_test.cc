#include "router/api/live_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"

namespace baton::router {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Call final : LiveCall {
  Call(std::string named, std::vector<std::string>* log) : name(std::move(named)), ends(log) {}
  std::function<void()> Says(const char* why) {
    return [this, why] { ends->push_back(name + why); };
  }
  std::function<void()> IfStalled(absl::Time) override { return nullptr; }
  std::function<void()> AtDeadline() override { return Says(": deadline"); }
  std::function<void()> AtDrain() override { return Says(": drain"); }

  const std::string name;
  std::vector<std::string>* const ends;
};

TEST(LiveCallsTest, EachIsEndedOnceWhenItsDeadlineComes) {
  FakeClock clock;
  LiveCalls calls(clock);
  std::vector<std::string> ends;
  Call a("a", &ends), b("b", &ends), c("c", &ends), forever("forever", &ends);
  const LiveCalls::Guard first(calls, a, clock.Now() + absl::Seconds(2));
  const LiveCalls::Guard second(calls, b, clock.Now() + absl::Seconds(1));
  const LiveCalls::Guard without(calls, forever);
  { const LiveCalls::Guard gone(calls, c, clock.Now() + absl::Seconds(1)); }
  clock.Advance(absl::Milliseconds(999));
  calls.EndDue();
  EXPECT_THAT(ends, IsEmpty());
  clock.Advance(absl::Milliseconds(1));
  calls.EndDue();
  EXPECT_THAT(ends, ElementsAre("b: deadline"));
  clock.Advance(absl::Seconds(5));
  calls.EndDue();
  calls.EndDue();
  EXPECT_THAT(ends, ElementsAre("b: deadline", "a: deadline"));
}

TEST(LiveCallsTest, ADrainEndsAllThatIsLeftAndThoseThatComeLater) {
  FakeClock clock;
  LiveCalls calls(clock);
  std::vector<std::string> ends;
  Call a("a", &ends), b("b", &ends);
  const LiveCalls::Guard first(calls, a, clock.Now() + absl::Hours(1));
  calls.DrainAt(clock.Now() + absl::Seconds(1));
  calls.EndDue();
  EXPECT_THAT(ends, IsEmpty());
  clock.Advance(absl::Seconds(1));
  calls.EndDue();
  calls.EndDue();
  EXPECT_THAT(ends, ElementsAre("a: drain"));
  const LiveCalls::Guard second(calls, b);
  calls.EndDue();
  EXPECT_THAT(ends, ElementsAre("a: drain", "b: drain"));
}

// A call with a deadline wakes the thread, which otherwise looks once in a second.
TEST(LiveCallsTest, TheThreadWaitsForTheFirstDeadline) {
  const MonotonicClock clock;
  LiveCalls calls(clock);
  calls.Watch(absl::InfiniteDuration());
  struct Waiting final : LiveCall {
    std::function<void()> IfStalled(absl::Time) override { return nullptr; }
    std::function<void()> AtDeadline() override {
      return [this] { ended.Notify(); };
    }
    std::function<void()> AtDrain() override { return nullptr; }
    absl::Notification ended;
  };
  for (int i = 0; i < 20; ++i) {
    Waiting call;
    const LiveCalls::Guard alive(calls, call, clock.Now() + absl::Milliseconds(1));
    call.ended.WaitForNotification();
  }
}

}  // namespace
}  // namespace baton::router
