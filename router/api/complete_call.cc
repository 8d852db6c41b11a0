#include "router/api/complete_call.h"

#include <utility>

#include "common/rpc/status.h"
#include "common/rpc/trace_metadata.h"
#include "router/api/grpc_credentials.h"
#include "router/api/usage.h"
#include "router/api/wire.h"

namespace baton::router {

grpc::ServerUnaryReactor* CompleteCall::Start(const CallContext& context,
                                              grpc::CallbackServerContext* server_context,
                                              const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response) {
  auto call = std::shared_ptr<CompleteCall>(new CompleteCall(*server_context, *response));
  call->self_ = call;
  call->driver_ = RequestDriver::Create(context, call, DeadlineOf(*server_context, *context.clock),
                                        "Complete", rpc::TraceOf(*server_context));
  // The call's own bytes go with the call, which a job on the executor may outlive.
  call->driver_->Start<v1::ChatRequest>(
      CredentialsOf(*server_context), bytes.Length(),
      [held = std::make_shared<grpc::ByteBuffer>(bytes)](v1::ChatRequest* request) {
        absl::Status status = ParseMessage(*held, request);
        held->Clear();
        return status;
      });
  return call.get();
}

void CompleteCall::Write(const v1::GenerateResponse& response, bool) {
  fold_.Add(response);
  driver_->OnWritten(true);
}

void CompleteCall::Finish(const absl::Status& status, const v1::GenerateResponse* last,
                          const v1::RequestUsage* usage) {
  if (usage != nullptr) AddUsage(*usage, &server_context_);
  if (last != nullptr) fold_.Add(*last);
  if (status.ok()) response_ = SerializeMessage(fold_.answer());
  grpc::ServerUnaryReactor::Finish(rpc::ToGrpc(status));
}

void CompleteCall::OnDone() {
  // The driver holds this call: both are destroyed when nothing else holds the driver.
  const std::shared_ptr<CompleteCall> self = std::move(self_);
  const std::shared_ptr<RequestDriver> driver = std::move(driver_);
}

}  // namespace baton::router
