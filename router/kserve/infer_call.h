// InferCall: a client's call of ModelInfer, whose answer is one message.
#pragma once

#include <optional>

#include "router/api/unary_call.h"
#include "router/kserve/infer_answer.h"

namespace baton::router::kserve {

class InferCall final : public UnaryCall {
 public:
  // Handles `bytes`, a ModelInferRequest; return the result from the service method. `response` lives until
  // the call was finished.
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         grpc::CallbackServerContext* server_context,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response);

 private:
  using UnaryCall::UnaryCall;

  // Reads `bytes` into `request`, and into the answer how it is to be told.
  absl::Status Read(const grpc::ByteBuffer& bytes, v1::GenerateRequest* request);
  void Add(const v1::GenerateResponse& response) override { answer_->Add(response); }
  grpc::ByteBuffer Answer() override;

  std::optional<InferAnswer> answer_;  // none before the request was read
};

}  // namespace baton::router::kserve
