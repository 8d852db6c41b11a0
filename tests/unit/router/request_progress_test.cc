#include "router/api/request_progress.h"

#include <gtest/gtest.h>

namespace baton::router {
namespace {

class RequestProgressTest : public testing::Test {
 protected:
  static v1::Progress News(v1::Progress::State state, uint32_t done, uint32_t ahead = 0) {
    v1::Progress news;
    news.set_state(state);
    news.set_prompt_tokens_done(done);
    news.set_requests_ahead(ahead);
    return news;
  }
  static v1::Progress Computing(uint32_t done) { return News(v1::Progress::STATE_COMPUTING, done); }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  RequestProgress progress_{1000};
};

TEST_F(RequestProgressTest, TellsAtMostOneInAQuarterOfASecond) {
  int told = 0;
  for (int i = 0; i < 100; ++i, now_ += absl::Milliseconds(10)) {
    told += progress_.OnNews(0, Computing(static_cast<uint32_t>(i)), now_).has_value();
  }
  EXPECT_EQ(told, 4);
}

TEST_F(RequestProgressTest, NeverFalls) {
  EXPECT_EQ(progress_.OnNews(0, Computing(300), now_)->prompt_tokens_done(), 300u);
  now_ += absl::Seconds(1);
  // Its worker was lost, and another one begins.
  const auto again = progress_.OnNews(0, News(v1::Progress::STATE_QUEUED, 0, 5), now_);
  EXPECT_EQ(again->state(), v1::Progress::STATE_QUEUED);
  EXPECT_EQ(again->requests_ahead(), 5u);
  EXPECT_EQ(again->prompt_tokens_done(), 300u);
  EXPECT_EQ(again->prompt_tokens(), 1000u);
  now_ += absl::Seconds(1);
  EXPECT_EQ(progress_.OnNews(0, Computing(5000), now_)->prompt_tokens_done(), 1000u) << "a worker's word";
}

TEST_F(RequestProgressTest, TellsOfTheChoiceThatIsFurthest) {
  EXPECT_TRUE(progress_.OnNews(0, Computing(10), now_).has_value());
  now_ += absl::Seconds(1);
  EXPECT_FALSE(progress_.OnNews(1, News(v1::Progress::STATE_QUEUED, 0), now_).has_value());
  EXPECT_TRUE(progress_.OnNews(1, Computing(20), now_).has_value());
  now_ += absl::Seconds(1);
  EXPECT_FALSE(progress_.OnNews(0, Computing(15), now_).has_value());
  EXPECT_TRUE(progress_.OnNews(1, News(v1::Progress::STATE_QUEUED, 0), now_).has_value()) << "its own";
}

TEST_F(RequestProgressTest, PredictsByThePlacementAndMoreAndMoreByThePaceSoFar) {
  const v1::Progress queued = News(v1::Progress::STATE_QUEUED, 0);
  EXPECT_FALSE(progress_.OnNews(0, queued, now_)->has_predicted_seconds()) << "it is not placed";
  progress_.OnPlaced({.wait = 4, .prefill = 10, .ship = 1}, now_);
  now_ += absl::Seconds(2);
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, queued, now_)->predicted_seconds(), 13);
  now_ += absl::Seconds(1);
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, Computing(200), now_)->predicted_seconds(), 8)
      << "it had to wait for less";
  now_ += absl::Seconds(2);
  // 4 s as planned, and 2 s at this pace.
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, Computing(600), now_)->predicted_seconds(), 0.4 * 4 + 0.6 * 2);
  now_ += absl::Seconds(4);
  // 2 s as planned, and 200 tokens at 600 in 6 s.
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, Computing(800), now_)->predicted_seconds(), 0.2 * 2 + 0.8 * 2);
  now_ += absl::Seconds(20);
  EXPECT_FALSE(progress_.OnNews(0, queued, now_)->has_predicted_seconds()) << "it is overdue";
}

TEST_F(RequestProgressTest, PredictsByThePaceAloneWhereNothingIsPlanned) {
  EXPECT_FALSE(progress_.OnNews(0, Computing(200), now_)->has_predicted_seconds());
  now_ += absl::Seconds(2);
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, Computing(600), now_)->predicted_seconds(), 2);
}

TEST_F(RequestProgressTest, PlansForWhatIsNotCached) {
  progress_.OnPlaced({.prefill = 10}, now_);
  v1::Progress news = Computing(600);
  news.set_cached_tokens(500);
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, news, now_)->predicted_seconds(), 8);
}

TEST_F(RequestProgressTest, KeepsAPredictionThatTheRouterMade) {
  v1::Progress news = News(v1::Progress::STATE_QUEUED, 0);
  news.set_predicted_seconds(3);
  progress_.OnPlaced({.prefill = 10}, now_);
  EXPECT_DOUBLE_EQ(progress_.OnNews(0, news, now_)->predicted_seconds(), 3);
}

TEST_F(RequestProgressTest, EndsWithAllOfThePrompt) {
  EXPECT_EQ(progress_.Done().state(), v1::Progress::STATE_COMPUTING);
  v1::Progress news = Computing(400);
  news.set_cached_tokens(700);
  EXPECT_EQ(progress_.OnNews(0, news, now_)->cached_tokens(), 400u);
  const v1::Progress done = progress_.Done();
  EXPECT_EQ(done.prompt_tokens_done(), 1000u);
  EXPECT_EQ(done.cached_tokens(), 400u);
  EXPECT_EQ(done.predicted_seconds(), 0);
}

}  // namespace
}  // namespace baton::router
