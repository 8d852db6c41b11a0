// GenerateCall: a client's call of Generate or Chat as gRPC sees it: the reactor of the call, and the
// ClientStream that its RequestDriver writes to. It turns bytes into messages and back, and decides nothing.
// Keeps itself alive until gRPC is done with it; the driver may hold it longer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/api/client_stream.h"
#include "router/api/request_driver.h"

namespace baton::router {

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ClientStream {
 public:
  // Handles `bytes`, a Request that came by `method`; return the result from the service method. Request is
  // GenerateRequest or ChatRequest.
  template <typename Request>
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(const CallContext& context,
                                                           std::string_view method,
                                                           grpc::CallbackServerContext* server_context,
                                                           const grpc::ByteBuffer& bytes);

 private:
  explicit GenerateCall(grpc::CallbackServerContext* server_context) : server_context_(server_context) {}

  // ClientStream, called by the driver.
  void Write(const v1::GenerateResponse& response, bool more) override;
  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage* usage) override;
  void Abort(const absl::Status& status) override;

  // Reactions, called by gRPC.
  void OnWriteDone(bool ok) override { driver_->OnWritten(ok); }
  void OnCancel() override { driver_->OnCancelled(); }
  void OnDone() override;

  grpc::ByteBuffer outgoing_;  // the driver's, one message at a time
  // Until OnDone.
  std::shared_ptr<GenerateCall> self_;
  std::shared_ptr<RequestDriver> driver_;
  absl::Mutex mutex_;
  grpc::CallbackServerContext* server_context_ ABSL_GUARDED_BY(mutex_);  // null once gRPC is done
};

}  // namespace baton::router
