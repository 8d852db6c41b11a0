// Question: a call that has one answer, at one router after the other until one answers. On the server's
// thread but for the answer's arrival. The exchange holds it.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/rpc/status.h"
#include "gateway/answer_format.h"
#include "gateway/counted_exchange.h"
#include "gateway/passed_on.h"
#include "gateway/probe.h"
#include "gateway/routers.h"
#include "gateway/tries.h"

namespace baton::gateway {

// call(router, context, request, answer, done): starts it. show(answer): the response.
template <typename Request, typename Answer, typename Call, typename Show>
class Question : public std::enable_shared_from_this<Question<Request, Answer, Call, Show>> {
 public:
  Question(std::shared_ptr<CountedExchange> exchange, Routers& routers, Probe& probe, Request request,
           AnswerFormat format, Call call, Show show, Tries tries)
      : exchange_(std::move(exchange)),
        routers_(routers),
        probe_(probe),
        request_(std::make_shared<const Request>(std::move(request))),
        format_(std::move(format)),
        call_(std::move(call)),
        show_(std::move(show)),
        tries_(tries) {}

  void Start() {
    exchange_->OnGone([self = this->shared_from_this()] {
      self->gone_ = true;
      if (self->context_ != nullptr) self->context_->TryCancel();
    });
    Ask();
  }

 private:
  void Ask() {
    const std::shared_ptr<Router> router = routers_.Pick(avoid_);
    if (router == nullptr) return OnDone(routers_.NoneKnown());
    avoid_ = router->address;
    context_ = std::make_shared<grpc::ClientContext>();
    PassOn(exchange_->request(), context_.get());
    struct Asked {
      std::shared_ptr<Question> self;
      std::shared_ptr<Router> router;  // whose channel the context holds
      std::shared_ptr<const Request> request;
      std::shared_ptr<grpc::ClientContext> context;
      Answer answer;
    };
    auto asked = std::make_shared<Asked>(Asked{this->shared_from_this(), router, request_, context_, {}});
    Asked& call = *asked;
    call_(*router, call.context.get(), call.request.get(), &call.answer,
          [held = std::make_shared<std::shared_ptr<Asked>>(std::move(asked))](const grpc::Status& status) {
            // gRPC's threads must let go of no channel (Routers): what holds one goes to the server's.
            std::shared_ptr<Asked> own = std::move(*held);
            if (status.ok()) own->self->OnAnswer(own->answer);
            const std::shared_ptr<CountedExchange> exchange = own->self->exchange_;
            exchange->Post([own = std::move(own), told = rpc::FromGrpc(status)] { own->self->OnDone(told); });
          });
  }

  void OnDone(const absl::Status& status) {
    context_ = nullptr;
    // The client may take its answer slowly, and the exchange holds this until it has.
    if (status.ok()) request_ = nullptr;
    if (gone_ || status.ok()) return;
    const auto pause = AnotherMayAnswer(status, /*heard=*/false) ? tries_.Next() : std::nullopt;
    if (!pause.has_value()) return exchange_->Answer(ErrorResponse(InWordsOf(format_.api, status), format_));
    probe_.GoesOn(/*resumed=*/false);
    pause_.Then(*pause, [weak = this->weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->exchange_->Post([self] {
        if (!self->gone_) self->Ask();
      });
    });
  }

  void OnAnswer(const Answer& answer) {
    http::Response response = show_(answer);
    response.headers.insert(response.headers.end(), format_.headers.begin(), format_.headers.end());
    exchange_->Answer(std::move(response));
  }

  const std::shared_ptr<CountedExchange> exchange_;
  Routers& routers_;
  Probe& probe_;
  std::shared_ptr<const Request> request_;
  const AnswerFormat format_;
  const Call call_;
  const Show show_;
  std::string avoid_;  // where it was asked last
  Tries tries_;
  Pause pause_;
  std::shared_ptr<grpc::ClientContext> context_;  // of the call under way; null: there is none
  bool gone_ = false;
};

}  // namespace baton::gateway
