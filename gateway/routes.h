// Routes: which endpoint serves a request of HTTP, and how: read by the vendor's mapping, asked of the
// router, answered in the vendor's words. Nothing is kept between requests. On the HTTP server's thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.grpc.pb.h"
#include "gateway/answer_call.h"
#include "gateway/answer_format.h"
#include "gateway/counted_exchange.h"
#include "gateway/http/exchange.h"
#include "gateway/mapping/anthropic_request.h"
#include "gateway/mapping/json_object.h"
#include "gateway/origins.h"
#include "gateway/probe.h"
#include "gateway/routers.h"
#include "gateway/side_thread.h"
#include "gateway/tries.h"
#include "grpc/health/v1/health.pb.h"

namespace baton::gateway {

struct RouteOptions {
  AnthropicRules rules;
  CallTimes times;
  // The page for people.
  bool page = false;
  // The server's address, and the origins whose pages may use it (Origins).
  std::string listen;
  std::vector<std::string> cors_origins = {};
};

class Routes {
 public:
  // `routers` and `probe` outlive it, and it outlives the server's thread and all exchanges.
  Routes(Routers& routers, const RouteOptions& options, Probe& probe)
      : options_(options), origins_(options.cors_origins, options.listen), probe_(probe), routers_(routers) {}

  // `alive` is held until the exchange has ended.
  void Serve(const std::shared_ptr<http::Exchange>& plain, const std::shared_ptr<void>& alive);

 private:
  using Handle = std::shared_ptr<CountedExchange>;

  // These read the body, on the server's thread or on `side_thread_`.
  void Chat(const Handle& exchange);
  void Complete(const Handle& exchange);
  void Responses(const Handle& exchange);
  void Moderations(const Handle& exchange);
  void Messages(const Handle& exchange);
  void CountTokens(const Handle& exchange);
  void Tokenize(const Handle& exchange);
  void Detokenize(const Handle& exchange);
  // And these read none.
  void Models(const Handle& exchange);
  void Health(const Handle& exchange);
  void Ready(const Handle& exchange);
  void Version(const Handle& exchange);

  // The body as JSON; nothing: it was answered that it is none.
  std::optional<Json> Body(const Handle& exchange, const AnswerFormat& errors) const;
  // False: it was answered that the router takes no message of this size.
  static bool Fits(const Handle& exchange, const google::protobuf::MessageLite& request);
  void AddIgnored(const std::vector<std::string>& ignored, AnswerFormat* format);
  void StartChat(const Handle& exchange, v1::ChatRequest request, AnswerFormat format);
  // A call that has one answer. `call` starts it at a router, perhaps at several, one after the other; `show`
  // shows the answer.
  template <typename Request, typename Answer, typename Call, typename Show>
  void Ask(const Handle& exchange, Request request, const AnswerFormat& errors, Call call, Show show,
           Tries tries = Tries());

  const RouteOptions options_;
  const Origins origins_;
  Probe& probe_;
  Routers& routers_;
  SideThread side_thread_;
};

}  // namespace baton::gateway
