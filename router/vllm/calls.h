// StreamCall, WholeCall: clients' calls of GenerateStream and of Generate. Both are here by the client's name
// for them, and one that is ended by that name ends well, with the reason ABORTED.
#pragma once

#include <atomic>
#include <optional>

#include "router/api/generate_call.h"
#include "router/api/unary_call.h"
#include "router/vllm/answer.h"
#include "router/vllm/running_requests.h"

namespace baton::router::vllm {

class StreamCall final : public GenerateCall {
 public:
  // Handles `bytes`, a GenerateRequest; return the result from the service method. `running` outlives the
  // call.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(const CallContext& context,
                                                           RunningRequests& running,
                                                           grpc::CallbackServerContext* server_context,
                                                           const grpc::ByteBuffer& bytes);

 private:
  using GenerateCall::GenerateCall;

  std::optional<grpc::ByteBuffer> Show(const v1::GenerateResponse& response) override;
  std::optional<grpc::ByteBuffer> ShowFailure(const absl::Status& status) override;

  std::optional<Answer> answer_;  // none before the request was read
  std::atomic<bool> aborted_ = false;
  RunningRequests::Guard running_;
};

class WholeCall final : public UnaryCall {
 public:
  // As StreamCall. `response` lives until the call was finished.
  static grpc::ServerUnaryReactor* Start(const CallContext& context, RunningRequests& running,
                                         grpc::CallbackServerContext* server_context,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response);

 private:
  using UnaryCall::UnaryCall;

  void Add(const v1::GenerateResponse& response) override { answer_->Add(response); }
  grpc::ByteBuffer Answer() override;
  std::optional<grpc::ByteBuffer> AnswerTo(const absl::Status& status) override;

  std::optional<vllm::Answer> answer_;  // none before the request was read
  std::atomic<bool> aborted_ = false;
  RunningRequests::Guard running_;
};

}  // namespace baton::router::vllm
