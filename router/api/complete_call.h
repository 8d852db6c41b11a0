// CompleteCall: a client's call of Complete: what Chat would stream, folded.
#pragma once

#include "router/api/answer_fold.h"
#include "router/api/unary_call.h"

namespace baton::router {

class CompleteCall final : public UnaryCall {
 public:
  // Handles `bytes`, a ChatRequest; return the result from the service method. `response` lives until the
  // call was finished.
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         grpc::CallbackServerContext* server_context,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response);

 private:
  using UnaryCall::UnaryCall;

  void Add(const v1::GenerateResponse& response) override { fold_.Add(response); }
  grpc::ByteBuffer Answer() override;

  AnswerFold fold_;
};

}  // namespace baton::router
