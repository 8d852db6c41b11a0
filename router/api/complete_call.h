// CompleteCall: a client's call of Complete as gRPC sees it: the reactor of a unary call, and the
// ClientStream that its RequestDriver writes to, which folds what Chat would stream. It takes every message
// at once, so the answer's size is bounded by its tokens alone. Keeps itself alive until gRPC is done with
// it; the driver may hold it longer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "router/api/answer_fold.h"
#include "router/api/client_stream.h"
#include "router/api/request_driver.h"

namespace baton::router {

class CompleteCall final : public grpc::ServerUnaryReactor, public ClientStream {
 public:
  // Handles `bytes`, a ChatRequest; return the result from the service method. `response` lives until the
  // call was finished.
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         grpc::CallbackServerContext* server_context,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response);

 private:
  CompleteCall(grpc::CallbackServerContext& server_context, grpc::ByteBuffer& response)
      : server_context_(server_context), response_(response) {}

  // ClientStream, called by the driver.
  void Write(const v1::GenerateResponse& response, bool more) override;
  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage* usage) override;
  // No message ever waits for the client.
  void Abort(const absl::Status&) override {}

  // Reactions, called by gRPC.
  void OnCancel() override { driver_->OnCancelled(); }
  void OnDone() override;

  AnswerFold fold_;                              // the driver's
  grpc::CallbackServerContext& server_context_;  // both live until the call was finished
  grpc::ByteBuffer& response_;
  // Until OnDone.
  std::shared_ptr<CompleteCall> self_;
  std::shared_ptr<RequestDriver> driver_;
};

}  // namespace baton::router
