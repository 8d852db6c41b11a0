// FoldedCall: a client's call of ChatUnary or GenerateUnary: what Chat or Generate would stream, in one
// message.
#pragma once

#include <string_view>

#include "protocol/client/answer_fold.h"
#include "router/api/unary_call.h"

namespace baton::router {

class FoldedCall final : public UnaryCall {
 public:
  // Handles `bytes`, a message Unary that came by `method`, a constant; return the result from the service
  // method. Unary is ChatUnaryRequest or GenerateUnaryRequest. `response` lives until the call was finished.
  template <typename Unary>
  static grpc::ServerUnaryReactor* Start(const CallContext& context, std::string_view method,
                                         grpc::CallbackServerContext* server_context,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response);

 private:
  using UnaryCall::UnaryCall;

  void Add(const v1::GenerateResponse& response) override { fold_.Add(response); }
  grpc::ByteBuffer Answer() override;

  protocol::AnswerFold fold_;
};

}  // namespace baton::router
