#include "router/api/unary_call.h"

#include <fmt/format.h>

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc/trace_metadata.h"
#include "router/api/grpc_credentials.h"
#include "router/api/inflate.h"
#include "router/api/usage.h"

namespace baton::router {

template <typename Request>
grpc::ServerUnaryReactor* UnaryCall::Run(
    const std::shared_ptr<UnaryCall>& call, const CallContext& context, std::string_view method,
    const grpc::ByteBuffer& bytes,
    std::function<absl::Status(const grpc::ByteBuffer& bytes, Request* request)> parse) {
  call->self_ = call;
  call->load_ = context.load;
  call->driver_ = RequestDriver::Create(context, call, DeadlineOf(call->server_context_, *context.clock),
                                        method, rpc::TraceOf(call->server_context_), call->name_);
  {
    absl::MutexLock lock(&call->mutex_);
    call->cancels_ = call->driver_;
  }
  // The call's own bytes go with the call, which a job on the executor may outlive.
  call->driver_->Start<Request>(
      CredentialsOf(call->server_context_), RequestBytes(bytes),
      [parse = std::move(parse), held = std::make_shared<grpc::ByteBuffer>(bytes)](Request* request) {
        absl::Status status = parse(*held, request);
        held->Clear();
        return status;
      });
  return call.get();
}

template grpc::ServerUnaryReactor* UnaryCall::Run(
    const std::shared_ptr<UnaryCall>&, const CallContext&, std::string_view, const grpc::ByteBuffer&,
    std::function<absl::Status(const grpc::ByteBuffer&, v1::GenerateRequest*)>);
template grpc::ServerUnaryReactor* UnaryCall::Run(
    const std::shared_ptr<UnaryCall>&, const CallContext&, std::string_view, const grpc::ByteBuffer&,
    std::function<absl::Status(const grpc::ByteBuffer&, v1::ChatRequest*)>);

absl::Status UnaryCall::Bound(uint32_t max_answer_bytes) {
  if (max_answer_bytes > rpc::kMaxMessageBytes) {
    return absl::InvalidArgumentError(fmt::format("max_answer_bytes: {}, at most {} are sent in one message",
                                                  max_answer_bytes, rpc::kMaxMessageBytes));
  }
  if (max_answer_bytes > 0) max_answer_bytes_ = max_answer_bytes;
  return absl::OkStatus();
}

void UnaryCall::Cancel() {
  std::shared_ptr<RequestDriver> driver;
  {
    absl::MutexLock lock(&mutex_);
    driver = cancels_.lock();
  }
  if (driver != nullptr) driver->OnCancelled();
}

// The answer, which is one message, is always long in coming.
void UnaryCall::Admitted(const std::string& request_id, bool) {
  name_.id = request_id;
  Announce(name_, &server_context_);
  StartSendInitialMetadata();
}

void UnaryCall::Write(const v1::GenerateResponse& response, bool) {
  Add(response);
  driver_->OnWritten(true);
}

void UnaryCall::Finish(const absl::Status& status, const v1::GenerateResponse* last,
                       const v1::RequestUsage* usage) {
  if (usage != nullptr) AddUsage(*usage, &server_context_);
  if (usage != nullptr && load_ != nullptr) AddLoad(load_->OnEnded(status), &server_context_);
  if (last != nullptr) Add(*last);
  std::optional<grpc::ByteBuffer> answer = status.ok() ? Answer() : AnswerTo(status);
  const bool well = answer.has_value();
  if (well) response_ = *std::move(answer);
  grpc::ServerUnaryReactor::Finish(well ? grpc::Status::OK : EndOf(status, &server_context_));
}

void UnaryCall::OnDone() {
  // The driver holds this call: both are destroyed when nothing else holds the driver.
  const std::shared_ptr<UnaryCall> self = std::move(self_);
  const std::shared_ptr<RequestDriver> driver = std::move(driver_);
}

}  // namespace baton::router
