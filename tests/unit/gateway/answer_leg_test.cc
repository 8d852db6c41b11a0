// The counts of an answer's leg, and the calls that it asks for once one has broken off.
#include "gateway/answer_leg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/rpc/status.h"
#include "tests/unit/gateway/events.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;

using Leg = AnswerLeg<v1::GenerateRequest>;

v1::GenerateRequest Asking(const std::string& key = "", std::optional<uint64_t> seed = std::nullopt) {
  v1::GenerateRequest request;
  request.set_text("hello");
  request.mutable_options()->set_idempotency_key(key);
  if (seed.has_value()) request.mutable_sampling()->set_seed(*seed);
  return request;
}

v1::GenerateResponse Started() {
  v1::GenerateResponse event = StartedEvent();
  event.mutable_started()->set_seed(77);
  event.mutable_started()->set_build("b");
  return event;
}

v1::GenerateResponse Tokens(uint32_t choice, uint32_t count) {
  v1::GenerateResponse event = TextEvent("a", choice);
  event.mutable_delta()->set_tokens(count);
  return event;
}

v1::GenerateResponse Finished(uint32_t choice) { return FinishedEvent(v1::FINISH_REASON_LENGTH, choice); }

TEST(AnswerLegTest, HasAKeyAndASeedOfItsOwnUnlessTheClientGaveThem) {
  const Leg own(Asking(), 1), other(Asking(), 1);
  EXPECT_TRUE(own.request()->options().not_held());
  EXPECT_NE(own.request()->options().idempotency_key(), other.request()->options().idempotency_key());
  EXPECT_NE(own.request()->sampling().seed(), other.request()->sampling().seed());
  const Leg keyed(Asking("key"), 1), again(Asking("key"), 1), seeded(Asking("key", 5), 1);
  EXPECT_EQ(keyed.request()->options().idempotency_key(), "key");
  EXPECT_FALSE(keyed.request()->options().not_held());
  EXPECT_TRUE(keyed.request()->sampling().has_seed());
  EXPECT_EQ(keyed.request()->sampling().seed(), again.request()->sampling().seed());
  EXPECT_EQ(seeded.request()->sampling().seed(), 5u);
  v1::GenerateRequest told = Asking();
  told.mutable_output()->set_prompt_logprobs(true);
  const Leg prompt(told, 1);
  EXPECT_EQ(prompt.request()->options().idempotency_key(), "");
}

TEST(AnswerLegTest, AsksForWhatLiesBehindTheTokensThatCame) {
  Leg leg(Asking("key", 5), 2);
  EXPECT_FALSE(leg.began());
  EXPECT_TRUE(leg.Count(Started()));
  EXPECT_TRUE(leg.Count(Tokens(0, 3)));
  EXPECT_TRUE(leg.Count(Tokens(1, 1)));
  EXPECT_TRUE(leg.Count(Tokens(0, 1)));
  EXPECT_TRUE(leg.Count(Finished(1)));
  const auto rest = leg.Rest();
  EXPECT_EQ(rest->request_id(), "r1");
  EXPECT_THAT(rest->after_tokens(), ElementsAre(4, 1));
  EXPECT_EQ(rest->generate().text(), "hello");
  EXPECT_EQ(rest->generate().sampling().seed(), 77u) << "that of the answer, whatever was asked for";
  EXPECT_EQ(rest->generate().options().build(), "b");
  // The next call tells of the beginning, and of ends, once more.
  EXPECT_FALSE(leg.Count(Started()));
  EXPECT_FALSE(leg.Count(Finished(1)));
  EXPECT_TRUE(leg.Count(Finished(0)));
}

TEST(AnswerLegTest, TriesAgainAfterABreakAndNotAfterARefusal) {
  const absl::Status broke = absl::UnavailableError("Connection reset by peer");
  Leg leg(Asking(), 1);
  EXPECT_FALSE(leg.TryAgain(absl::InvalidArgumentError("no")).has_value());
  // Busy from the first: the client's to hear.
  const absl::Status busy = rpc::WithRetryDelay(absl::ResourceExhaustedError("busy"), absl::Seconds(1));
  EXPECT_FALSE(leg.TryAgain(busy).has_value());
  EXPECT_EQ(leg.TryAgain(broke), absl::ZeroDuration());
  // Busy after a break: the router took over what another had.
  const auto later = leg.TryAgain(busy);
  ASSERT_TRUE(later.has_value());
  EXPECT_GE(*later, absl::Seconds(1));
  EXPECT_LE(*later, absl::Seconds(2));
  EXPECT_EQ(leg.Told(busy), busy) << "nothing had come";
  EXPECT_TRUE(leg.Count(Started()));
  EXPECT_EQ(leg.Told(busy), broke);
  // It has an end, unless something comes in between.
  int tries = 0;
  while (leg.TryAgain(broke).has_value()) ASSERT_LT(++tries, 100);
  EXPECT_TRUE(leg.Count(Tokens(0, 1)));
  EXPECT_EQ(leg.Told(busy), busy) << "the break was got over";
  EXPECT_TRUE(leg.TryAgain(broke).has_value());
}

TEST(AnswerLegTest, WithoutAKeyItDoesNotGoOn) {
  v1::GenerateRequest request = Asking();
  request.mutable_output()->set_prompt_logprobs(true);
  Leg leg(request, 1);
  const absl::Status broke = absl::UnavailableError("Connection reset by peer");
  EXPECT_TRUE(leg.TryAgain(broke).has_value()) << "it can be asked anew";
  EXPECT_TRUE(leg.Count(Started()));
  EXPECT_FALSE(leg.TryAgain(broke).has_value());
}

}  // namespace
}  // namespace baton::gateway
