// AnswerCall: one streamed answer, from the router's stream to the client's. It reads the next event of the
// router only when the client has taken what came of the one before, so a slow client slows the engine down
// and fills no memory here. A client that goes away cancels the call, also while its prompt waits. All of it
// runs on the HTTP server's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "gateway/http/exchange.h"
#include "gateway/mapping/answer.h"
#include "gateway/probe.h"

namespace baton::gateway {

// How a vendor writes an answer. Either `whole` or both of the others.
struct AnswerFormat {
  std::function<std::string(const Answer&, const v1::Usage&)> whole;
  std::function<std::string(const v1::GenerateResponse&)> piece;
  std::function<std::string(const v1::Usage&)> last;
  // The body of an answer that failed, and its event in the middle of a stream.
  std::function<std::string(const absl::Status&)> error;
  std::function<std::string(const absl::Status&)> error_event;
  // Of every answer.
  http::Headers headers;
};

struct CallTimes {
  absl::Duration comment_after;
  absl::Duration head_after;
};

// Starts it. Request: ChatRequest or GenerateRequest. `probe` outlives the server's thread.
template <typename Request>
void StartAnswer(std::shared_ptr<http::Exchange> exchange, v1::Inference::Stub& router, Request request,
                 AnswerFormat format, const CallTimes& times, Probe& probe);

// The metadata of a call: the client's key and trace context.
void PassOn(const http::Request& request, grpc::ClientContext* context);

// The whole answer is an error.
http::Response ErrorResponse(const absl::Status& status, const AnswerFormat& format);

}  // namespace baton::gateway
