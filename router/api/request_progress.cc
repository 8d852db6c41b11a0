#include "router/api/request_progress.h"

#include <algorithm>
#include <utility>

namespace baton::router {

void RequestProgress::OnPlaced(const placement::Prediction& predicted, absl::Time now) {
  due_ = predicted.ttft() > 0 ? now + absl::Seconds(predicted.ttft()) : absl::InfiniteFuture();
  prefill_ = predicted.prefill;
}

std::optional<v1::Progress> RequestProgress::OnNews(int choice, v1::Progress news, absl::Time now) {
  if (now - told_at_ < kTellEvery) return std::nullopt;
  const bool further = news.prompt_tokens_done() > told_.prompt_tokens_done();
  if (choice_ >= 0 && choice != choice_ && !further) return std::nullopt;
  news.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens_));
  news.set_prompt_tokens_done(std::clamp(news.prompt_tokens_done(), told_.prompt_tokens_done(),
                                         static_cast<uint32_t>(prompt_tokens_)));
  news.set_cached_tokens(std::min(news.cached_tokens(), news.prompt_tokens_done()));
  if (news.state() != v1::Progress::STATE_COMPUTING) {
    computing_ = std::nullopt;
  } else if (!computing_.has_value()) {
    computing_ = {.since = now, .from = static_cast<double>(news.prompt_tokens_done())};
  }
  if (!news.has_predicted_seconds()) {
    if (const auto left = Predict(news, now); left.has_value()) news.set_predicted_seconds(*left);
  }
  choice_ = choice;
  told_ = news;
  told_at_ = now;
  return news;
}

std::optional<double> RequestProgress::Predict(const v1::Progress& news, absl::Time now) const {
  if (!computing_.has_value()) {
    if (due_ == absl::InfiniteFuture() || due_ < now) return std::nullopt;
    return absl::ToDoubleSeconds(due_ - now);
  }
  const double prompt = static_cast<double>(prompt_tokens_), done = news.prompt_tokens_done();
  const double left = prompt - done;
  std::optional<double> planned;
  if (prefill_ > 0) planned = prefill_ * left / std::max(1.0, prompt - news.cached_tokens());
  if (done <= computing_->from) return planned;
  // The pace so far tells of the worker as it is now. Later tokens attend to more and take longer than these,
  // which the plan knows: so the pace counts for as much as there is done.
  const double by_pace = left * absl::ToDoubleSeconds(now - computing_->since) / (done - computing_->from);
  return planned.has_value() ? *planned + (by_pace - *planned) * done / prompt : by_pace;
}

v1::Progress RequestProgress::Done() {
  v1::Progress news = told_;
  if (news.state() == v1::Progress::STATE_UNSPECIFIED) news.set_state(v1::Progress::STATE_COMPUTING);
  news.set_requests_ahead(0);
  news.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens_));
  news.set_prompt_tokens_done(static_cast<uint32_t>(prompt_tokens_));
  news.set_predicted_seconds(0);
  return news;
}

}  // namespace baton::router
