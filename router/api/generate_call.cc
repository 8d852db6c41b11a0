#include "router/api/generate_call.h"

#include <grpc/grpc.h>

#include <string>
#include <utility>

#include "common/rpc/status.h"
#include "common/rpc/trace_metadata.h"
#include "router/api/grpc_credentials.h"
#include "router/api/inflate.h"
#include "router/api/usage.h"
#include "router/api/wire.h"

namespace baton::router {

template <typename Request>
grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Start(const CallContext& context,
                                                                std::string_view method,
                                                                grpc::CallbackServerContext* server_context,
                                                                const grpc::ByteBuffer& bytes) {
  return Run<Request>(
      std::shared_ptr<GenerateCall>(new GenerateCall(server_context)), context, method, server_context, bytes,
      [](const grpc::ByteBuffer& held, Request* request) { return ParseMessage(held, request); });
}

template <typename Request>
grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Run(
    const std::shared_ptr<GenerateCall>& call, const CallContext& context, std::string_view method,
    grpc::CallbackServerContext* server_context, const grpc::ByteBuffer& bytes,
    std::function<absl::Status(const grpc::ByteBuffer& bytes, Request* request)> parse) {
  Open(call, context, method, *server_context);
  // The call's own bytes go with the call, which a job on the executor may outlive.
  call->driver_->Start<Request>(
      CredentialsOf(*server_context), RequestBytes(bytes),
      [parse = std::move(parse), held = std::make_shared<grpc::ByteBuffer>(bytes)](Request* request) {
        absl::Status status = parse(*held, request);
        held->Clear();
        return status;
      });
  return call.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Resume(const CallContext& context,
                                                                 grpc::CallbackServerContext* server_context,
                                                                 const grpc::ByteBuffer& bytes) {
  const std::shared_ptr<GenerateCall> call(new GenerateCall(server_context));
  Open(call, context, "Resume", *server_context);
  call->driver_->Resume(CredentialsOf(*server_context), RequestBytes(bytes),
                        [held = std::make_shared<grpc::ByteBuffer>(bytes)](v1::ResumeRequest* request) {
                          absl::Status status = ParseMessage(*held, request);
                          held->Clear();
                          return status;
                        });
  return call.get();
}

void GenerateCall::Open(const std::shared_ptr<GenerateCall>& call, const CallContext& context,
                        std::string_view method, const grpc::CallbackServerContext& server_context) {
  call->self_ = call;
  call->name_ = NameCall(server_context);
  call->load_ = context.load;
  call->driver_ = RequestDriver::Create(context, call, DeadlineOf(server_context, *context.clock), method,
                                        rpc::TraceOf(server_context), call->name_);
  absl::MutexLock lock(&call->mutex_);
  call->cancels_ = call->driver_;
}

void GenerateCall::Cancel() {
  std::shared_ptr<RequestDriver> driver;
  {
    absl::MutexLock lock(&mutex_);
    driver = cancels_.lock();
  }
  if (driver != nullptr) driver->OnCancelled();
}

std::optional<grpc::ByteBuffer> GenerateCall::Show(const v1::GenerateResponse& response) {
  // A ChatResponse and a ResumeResponse have the fields of a GenerateResponse.
  return SerializeMessage(response);
}

std::optional<grpc::ByteBuffer> GenerateCall::ShowFailure(const absl::Status&) { return std::nullopt; }

template grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Start<v1::GenerateRequest>(
    const CallContext&, std::string_view, grpc::CallbackServerContext*, const grpc::ByteBuffer&);
template grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Start<v1::ChatRequest>(
    const CallContext&, std::string_view, grpc::CallbackServerContext*, const grpc::ByteBuffer&);
template grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Run<v1::GenerateRequest>(
    const std::shared_ptr<GenerateCall>&, const CallContext&, std::string_view, grpc::CallbackServerContext*,
    const grpc::ByteBuffer&, std::function<absl::Status(const grpc::ByteBuffer&, v1::GenerateRequest*)>);

// A request that is placed at once has its metadata with the first message: that saves a write.
void GenerateCall::Admitted(const std::string& request_id, bool waits) {
  {
    absl::MutexLock lock(&mutex_);
    if (server_context_ == nullptr) return;
    name_.id = request_id;
    Announce(name_, server_context_);
  }
  if (waits) StartSendInitialMetadata();
}

void GenerateCall::Write(const v1::GenerateResponse& response, bool more) {
  std::optional<grpc::ByteBuffer> shown = Show(response);
  if (!shown.has_value()) return driver_->OnWritten(true);
  outgoing_ = *std::move(shown);
  grpc::WriteOptions options;
  if (more) options.set_buffer_hint();  // both in one packet
  StartWrite(&outgoing_, options);
}

void GenerateCall::Finish(const absl::Status& status, const v1::GenerateResponse* last,
                          const v1::RequestUsage* usage) {
  std::optional<grpc::ByteBuffer> shown = last == nullptr ? ShowFailure(status) : Show(*last);
  grpc::Status end = rpc::ToGrpc(status);
  const std::string load = usage == nullptr || load_ == nullptr ? "" : load_->OnEnded(status);
  {
    absl::MutexLock lock(&mutex_);
    if (server_context_ != nullptr) {
      if (usage != nullptr) AddUsage(*usage, server_context_);
      AddLoad(load, server_context_);
      if (!shown.has_value()) end = EndOf(status, server_context_);
    }
  }
  if (!shown.has_value()) {
    grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(end);
    return;
  }
  outgoing_ = *std::move(shown);
  StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
}

// Finish() would wait behind the message that the client doesn't take. Core's own cancellation sends the
// status at once, past flow control, and drops the message.
void GenerateCall::Abort(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (server_context_ == nullptr) return;
  grpc_call_cancel_with_status(server_context_->c_call(), static_cast<grpc_status_code>(status.code()),
                               std::string(status.message()).c_str(), nullptr);
}

void GenerateCall::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    server_context_ = nullptr;
  }
  // The driver holds this call: both are destroyed when nothing else holds the driver.
  const std::shared_ptr<GenerateCall> self = std::move(self_);
  const std::shared_ptr<RequestDriver> driver = std::move(driver_);
}

}  // namespace baton::router
