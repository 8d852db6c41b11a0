// RequestFlow's part in progress: what the client hears before its first token.
#include <utility>

#include "router/api/request_flow.h"

namespace baton::router {

Actions RequestFlow::OnWaits(int choice, const Waiting& waiting) {
  Actions actions;
  if (end_.has_value() || choices_[choice].state != State::kWaiting) return actions;
  v1::Progress news;
  news.set_state(v1::Progress::STATE_QUEUED);
  news.set_requests_ahead(static_cast<uint32_t>(waiting.ahead));
  if (waiting.left.has_value()) news.set_predicted_seconds(absl::ToDoubleSeconds(*waiting.left));
  TellProgress(choice, std::move(news), &actions);
  return actions;
}

void RequestFlow::TellProgress(int choice, v1::Progress news, Actions* actions) {
  // A client that does not read has no need of more.
  if (!progress_.has_value() || !outbox_.empty()) return;
  auto progress = progress_->OnNews(choice, std::move(news), clock_.Now());
  if (!progress.has_value()) return;
  v1::GenerateResponse response;
  *response.mutable_progress() = *std::move(progress);
  Send({.response = std::move(response)}, actions);
}

void RequestFlow::EndProgress(Actions* actions) {
  if (!progress_.has_value()) return;
  v1::GenerateResponse response;
  *response.mutable_progress() = progress_->Done();
  progress_ = std::nullopt;
  Send({.response = std::move(response)}, actions);
}

}  // namespace baton::router
