#include "gateway/counted_exchange.h"

#include <algorithm>

#include "absl/status/status.h"
#include "gateway/answer_format.h"
#include "gateway/mapping/http_status.h"

namespace baton::gateway {

CountedExchange::CountedExchange(std::shared_ptr<http::Exchange> exchange, std::string endpoint, Probe& probe,
                                 std::shared_ptr<void> alive, http::Headers headers)
    : alive_(std::move(alive)),
      exchange_(std::move(exchange)),
      endpoint_(std::move(endpoint)),
      probe_(probe),
      headers_(std::move(headers)),
      id_(NewRequestId()),
      status_(std::make_shared<std::atomic<int>>(HttpStatusOf(absl::StatusCode::kInternal))) {}

CountedExchange::~CountedExchange() { probe_.Answered(endpoint_, *status_, absl::Now() - begun_); }

void CountedExchange::OnGone(std::function<void()> gone) {
  // The client may go while its answer leaves, when nobody has this any more.
  exchange_->OnGone([status = status_, gone = std::move(gone)] {
    *status = HttpStatusOf(absl::StatusCode::kCancelled);
    gone();
  });
}

void CountedExchange::Named(http::Response* response) {
  *status_ = response->status;
  response->headers.insert(response->headers.end(), headers_.begin(), headers_.end());
  const bool named = std::ranges::any_of(
      response->headers, [](const auto& header) { return header.first == kRequestIdHeaders[0]; });
  if (named) return;
  for (const char* const name : kRequestIdHeaders) response->headers.emplace_back(name, id_);
}

}  // namespace baton::gateway
