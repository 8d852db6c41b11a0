#include "common/base/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/patience.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(SystemResolverTest, KnowsNumbersAndSaysWhatIsNoName) {
  const auto ask = [](const std::string& host) {
    Resolver::Answer result;
    absl::Notification done;
    SystemResolver resolver;
    resolver.Resolve(host, [&](Resolver::Answer answer) {
      result = std::move(answer);
      done.Notify();
    });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(Scaled(absl::Seconds(60))));
    return result;
  };
  EXPECT_THAT(*ask("127.0.0.3"), ElementsAre("127.0.0.3"));
  EXPECT_THAT(*ask("::1"), ElementsAre("::1"));
  EXPECT_FALSE(ask("no-such-host.invalid").ok());
}

}  // namespace
}  // namespace baton
