#include "router/kserve/infer_call.h"

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "router/api/wire.h"

namespace baton::router::kserve {

grpc::ServerUnaryReactor* InferCall::Start(const CallContext& context,
                                           grpc::CallbackServerContext* server_context,
                                           const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response) {
  const std::shared_ptr<InferCall> call(new InferCall(*server_context, *response));
  // The driver keeps the call until it has finished it.
  return Run<v1::GenerateRequest>(
      call, context, "ModelInfer", bytes,
      [call = call.get()](const grpc::ByteBuffer& held, v1::GenerateRequest* request) {
        return call->Read(held, request);
      });
}

absl::Status InferCall::Read(const grpc::ByteBuffer& bytes, v1::GenerateRequest* request) {
  inference::ModelInferRequest infer;
  BATON_RETURN_IF_ERROR(ParseMessage(bytes, &infer));
  BATON_ASSIGN_OR_RETURN(InferRequest read, ReadInferRequest(infer, /*streams=*/false));
  answer_.emplace(std::move(read.reply));
  *request = std::move(read.request);
  return absl::OkStatus();
}

grpc::ByteBuffer InferCall::Answer() { return SerializeMessage(answer_->Last()); }

}  // namespace baton::router::kserve
