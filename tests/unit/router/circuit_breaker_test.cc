#include "router/fleet/circuit_breaker.h"

#include <gtest/gtest.h>

namespace baton::router::fleet {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(100);

TEST(CircuitBreakerTest, IsClosedUntilARefusal) {
  CircuitBreaker breaker;
  EXPECT_TRUE(breaker.Allows(kNow));
  EXPECT_FALSE(breaker.Pass()) << "an ordinary request, no trial";
  EXPECT_TRUE(breaker.Allows(kNow)) << "any number of requests may go";
  breaker.OnRefused(kNow);
  EXPECT_FALSE(breaker.Allows(kNow));
}

TEST(CircuitBreakerTest, AnOpenOneLetsATrialGoAfterItsPatience) {
  CircuitBreaker breaker;
  breaker.OnRefused(kNow);
  EXPECT_FALSE(breaker.Allows(kNow + CircuitBreaker::kPatience - absl::Milliseconds(1)));
  EXPECT_TRUE(breaker.Allows(kNow + CircuitBreaker::kPatience));
  EXPECT_TRUE(breaker.Pass());
  EXPECT_FALSE(breaker.Allows(kNow + absl::Hours(1))) << "one trial at a time";
}

TEST(CircuitBreakerTest, ReliefHalfOpensItForOneTrial) {
  CircuitBreaker breaker;
  breaker.OnRefused(kNow);
  breaker.OnRelief();
  EXPECT_TRUE(breaker.Allows(kNow));
  EXPECT_TRUE(breaker.Pass());
  EXPECT_FALSE(breaker.Allows(kNow));
  breaker.OnRelief();
  EXPECT_FALSE(breaker.Allows(kNow)) << "relief sends no second trial";
}

TEST(CircuitBreakerTest, TheTrialDecides) {
  CircuitBreaker breaker;
  breaker.OnRefused(kNow);
  breaker.OnRelief();
  ASSERT_TRUE(breaker.Pass());
  breaker.OnRefused(kNow);
  EXPECT_FALSE(breaker.Allows(kNow)) << "refused again";
  breaker.OnRelief();
  ASSERT_TRUE(breaker.Pass());
  breaker.OnTrialVoid();
  EXPECT_TRUE(breaker.Allows(kNow)) << "the trial ended without an answer: another one may go";
  ASSERT_TRUE(breaker.Pass());
  breaker.OnAccepted();
  EXPECT_TRUE(breaker.Allows(kNow));
  EXPECT_FALSE(breaker.Pass()) << "closed: no further trials";
  breaker.OnTrialVoid();
  EXPECT_FALSE(breaker.Pass()) << "a trial that ends late changes nothing";
}

}  // namespace
}  // namespace baton::router::fleet
