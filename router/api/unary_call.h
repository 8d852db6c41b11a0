// UnaryCall: a client's call that one message answers, as gRPC sees it: the reactor of a unary call, and the
// ClientStream that its RequestDriver writes to, which folds what a stream would carry. It takes every
// message at once, so the answer's size is bounded by its tokens alone. Keeps itself alive until gRPC is done
// with it; the driver may hold it longer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/api/client_stream.h"
#include "router/api/request_driver.h"

namespace baton::router {

class UnaryCall : public grpc::ServerUnaryReactor, public ClientStream {
 protected:
  // Both live until the call was finished.
  UnaryCall(grpc::CallbackServerContext& server_context, grpc::ByteBuffer& response)
      : server_context_(server_context), response_(response) {}

  // Handles `bytes`, which came by `method`, a constant; return the result from the service method. `parse`
  // makes the request of the bytes, before the first Add; it is not called if the client is refused. Request
  // is GenerateRequest or ChatRequest.
  template <typename Request>
  static grpc::ServerUnaryReactor* Run(
      const std::shared_ptr<UnaryCall>& call, const CallContext& context, std::string_view method,
      const grpc::ByteBuffer& bytes,
      std::function<absl::Status(const grpc::ByteBuffer& bytes, Request* request)> parse);

  // Ends the call as if its client had gone. Any thread, any number of times.
  void Cancel();

  // The answer may have so many bytes; 0: 4 MiB. While the request is parsed. INVALID_ARGUMENT if they are
  // more than one message can have.
  absl::Status Bound(uint32_t max_answer_bytes);

 private:
  // The next message of the stream. The driver's, one thread at a time, as is Answer.
  virtual void Add(const v1::GenerateResponse& response) = 0;
  // The serialized answer, after the last message.
  virtual grpc::ByteBuffer Answer() = 0;
  // The answer to a client for which a request that ended so has ended well; none: it gets the status.
  virtual std::optional<grpc::ByteBuffer> AnswerTo(const absl::Status&) { return std::nullopt; }

  // ClientStream, called by the driver.
  void Admitted(const std::string& request_id, bool waits) final;
  void Write(const v1::GenerateResponse& response, bool more) final;
  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage* usage) final;
  uint32_t max_answer_bytes() const final { return max_answer_bytes_; }
  // No message ever waits for the client.
  void Abort(const absl::Status&) final {}

  // Reactions, called by gRPC.
  // Not by driver_, which OnDone takes: their order is gRPC's own.
  void OnCancel() final { Cancel(); }
  void OnDone() final;

  grpc::CallbackServerContext& server_context_;
  CallName name_ = NameCall(server_context_);
  grpc::ByteBuffer& response_;
  LoadReport* load_ = nullptr;  // null: none is told
  // The largest message that gRPC's clients take unless they are told otherwise.
  uint32_t max_answer_bytes_ = 4 << 20;
  // Until OnDone.
  std::shared_ptr<UnaryCall> self_;
  std::shared_ptr<RequestDriver> driver_;
  absl::Mutex mutex_;
  std::weak_ptr<RequestDriver> cancels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
