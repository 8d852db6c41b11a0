// GenerateCall: a client's call of Generate or Chat as gRPC sees it: the reactor of the call, and the
// ClientStream that its RequestDriver writes to. It turns bytes into messages and back, and decides nothing.
// Calls of other protocols that stream answers say how their messages look. Keeps itself alive until gRPC is
// done with it; the driver may hold it longer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/api/client_stream.h"
#include "router/api/request_driver.h"

namespace baton::router {

class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ClientStream {
 public:
  // Handles `bytes`, a Request that came by `method`; return the result from the service method. Request is
  // GenerateRequest or ChatRequest.
  template <typename Request>
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(const CallContext& context,
                                                           std::string_view method,
                                                           grpc::CallbackServerContext* server_context,
                                                           const grpc::ByteBuffer& bytes);
  // The same of a ResumeRequest.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Resume(const CallContext& context,
                                                            grpc::CallbackServerContext* server_context,
                                                            const grpc::ByteBuffer& bytes);

 protected:
  explicit GenerateCall(grpc::CallbackServerContext* server_context) : server_context_(server_context) {}

  // As Start; `parse` makes the request of the bytes, before the first Show. It is not called if the client
  // is refused.
  template <typename Request>
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Run(
      const std::shared_ptr<GenerateCall>& call, const CallContext& context, std::string_view method,
      grpc::CallbackServerContext* server_context, const grpc::ByteBuffer& bytes,
      std::function<absl::Status(const grpc::ByteBuffer& bytes, Request* request)> parse);

  // Makes the driver.
  static void Open(const std::shared_ptr<GenerateCall>& call, const CallContext& context,
                   std::string_view method, const grpc::CallbackServerContext& server_context);

  // Ends the call as if its client had gone. Any thread, any number of times.
  void Cancel();

 private:
  // The client's message; none: it gets none for this one. The driver's, one thread at a time, as is the
  // next.
  virtual std::optional<grpc::ByteBuffer> Show(const v1::GenerateResponse& response);
  // The last message of an answer that ended so, and well for the client; none: it gets the status.
  virtual std::optional<grpc::ByteBuffer> ShowFailure(const absl::Status& status);

  // ClientStream, called by the driver.
  void Admitted(const std::string& request_id, bool waits) final;
  void Write(const v1::GenerateResponse& response, bool more) final;
  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage* usage) final;
  void Abort(const absl::Status& status) final;

  // Reactions, called by gRPC.
  void OnWriteDone(bool ok) final { driver_->OnWritten(ok); }
  // Not by driver_, which OnDone takes: their order is gRPC's own.
  void OnCancel() final { Cancel(); }
  void OnDone() final;

  CallName name_;
  LoadReport* load_ = nullptr;  // null: none is told
  grpc::ByteBuffer outgoing_;   // the driver's, one message at a time
  // Until OnDone.
  std::shared_ptr<GenerateCall> self_;
  std::shared_ptr<RequestDriver> driver_;
  absl::Mutex mutex_;
  std::weak_ptr<RequestDriver> cancels_ ABSL_GUARDED_BY(mutex_);
  grpc::CallbackServerContext* server_context_ ABSL_GUARDED_BY(mutex_);  // null once gRPC is done
};

}  // namespace baton::router
