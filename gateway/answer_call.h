// AnswerCall: one streamed answer, from the router's stream to the client's. It reads the next event of the
// router only while the client has less than 64 KiB to take, so a slow client slows the engine down and fills
// little memory here. A client that goes away cancels the call, also while its prompt waits. An answer to
// several prompts is one of several calls, some of them at a time; it fails with the first that fails. A call
// whose router is lost, or leaves before the answer's end, is made again at another: it asks anew if nothing
// of the answer has come, and else for what lies behind the tokens that the client has (Resume). All of it
// but the arrival of events runs on the HTTP server's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "gateway/answer_format.h"
#include "gateway/http/exchange.h"
#include "gateway/probe.h"
#include "gateway/routers.h"
#include "gateway/side_thread.h"

namespace baton::gateway {

struct CallTimes {
  absl::Duration comment_after;
  absl::Duration head_after;
};

// Starts it. Request: ChatRequest or GenerateRequest; at least one. Several ask for equally many choices
// (RequestOptions.n), and those of the second come after those of the first. `routers` and `probe` outlive
// the server's thread. `side_thread` writes large answers. A header `idempotency-key` is that of each request
// (RequestOptions.idempotency_key), with the request's number behind it if there are several; `x-baton-build`
// is RequestOptions.build, and `x-baton-progress: true` asks for OutputOptions.progress, as comments of the
// stream.
template <typename Request>
void StartAnswer(std::shared_ptr<http::Exchange> exchange, Routers& routers, std::vector<Request> requests,
                 AnswerFormat format, const CallTimes& times, Probe& probe, SideThread& side_thread);

}  // namespace baton::gateway
