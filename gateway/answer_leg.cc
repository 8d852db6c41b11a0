#include "gateway/answer_leg.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "common/base/digest.h"
#include "common/base/random.h"
#include "common/rpc/status.h"

namespace baton::gateway {
namespace {

// Before an answer is asked for once more at routers that are busy.
constexpr absl::Duration kLongestPause = absl::Seconds(2);

template <typename Request>
Request Resumable(Request request) {
  v1::RequestOptions& options = *request.mutable_options();
  if (request.output().prompt_logprobs()) return request;
  if (options.idempotency_key().empty()) {
    options.set_idempotency_key(fmt::format("gateway-{:016x}{:016x}", RandomU64(), RandomU64()));
    options.set_not_held(true);
  }
  if (request.sampling().has_seed()) return request;
  // The same for the same key, whichever gateway and router a client comes to.
  uint64_t seed = 0;
  for (const char byte : Sha256Of(options.idempotency_key()).substr(0, sizeof(seed)))
    seed = seed << 8 | static_cast<uint8_t>(byte);
  request.mutable_sampling()->set_seed(seed);
  return request;
}

}  // namespace

template <typename Request>
AnswerLeg<Request>::AnswerLeg(Request request, uint32_t choices)
    : request_(std::make_shared<const Request>(Resumable(std::move(request)))),
      tokens_(choices),
      finished_(choices) {}

template <typename Request>
std::shared_ptr<const v1::ResumeRequest> AnswerLeg<Request>::Rest() const {
  auto rest = std::make_shared<v1::ResumeRequest>();
  rest->set_request_id(started_.request_id());
  for (const uint32_t tokens : tokens_) rest->add_after_tokens(tokens);
  Request* request = nullptr;
  if constexpr (std::is_same_v<Request, v1::ChatRequest>) {
    request = rest->mutable_chat();
  } else {
    request = rest->mutable_generate();
  }
  *request = *request_;
  request->mutable_sampling()->set_seed(started_.seed());
  request->mutable_options()->set_build(started_.build());
  return rest;
}

template <typename Request>
Router* AnswerLeg<Request>::PickRouter(Routers& routers) {
  router_ = routers.Pick(avoid_);
  heard_ = false;
  return router_.get();
}

template <typename Request>
bool AnswerLeg<Request>::Count(const v1::GenerateResponse& event) {
  const auto of = [&](uint32_t choice) { return std::min<size_t>(choice, tokens_.size() - 1); };
  heard_ = true;
  if (event.has_started()) {
    if (began()) return false;
    started_ = event.started();
  } else if (event.has_delta()) {
    tokens_[of(event.delta().choice())] += event.delta().tokens();
    tries_.Reset();
    broke_ = absl::OkStatus();
  } else if (event.has_finished()) {
    const size_t choice = of(event.finished().choice());
    if (finished_[choice]) return false;
    finished_[choice] = true;
  }
  return true;
}

template <typename Request>
void AnswerLeg<Request>::CallEnded() {
  if (router_ != nullptr) avoid_ = router_->address;
  router_ = nullptr;
}

template <typename Request>
std::optional<absl::Duration> AnswerLeg<Request>::TryAgain(const absl::Status& status) {
  const bool breaks = AnotherMayAnswer(status, heard_);
  // All answers of a router that is lost come to the others at once, which may have to say "later".
  const std::optional<absl::Duration> later =
      !broke_.ok() && absl::IsResourceExhausted(status) ? rpc::RetryDelay(status) : std::nullopt;
  if (!breaks && !later.has_value()) return std::nullopt;
  if (began() && request_->options().idempotency_key().empty()) return std::nullopt;
  std::optional<absl::Duration> pause = tries_.Next();
  if (!pause.has_value()) return std::nullopt;
  if (later.has_value()) pause = std::max(*pause, std::min(*later, kLongestPause));
  if (breaks) broke_ = status;
  return pause;
}

template <typename Request>
const absl::Status& AnswerLeg<Request>::Told(const absl::Status& status) const {
  // That no router goes on with the answer is news of the break, after which its client may ask once more,
  // and not of the request.
  return began() && !broke_.ok() ? broke_ : status;
}

template class AnswerLeg<v1::ChatRequest>;
template class AnswerLeg<v1::GenerateRequest>;

}  // namespace baton::gateway
