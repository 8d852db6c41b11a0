// InferenceService, ControlService: vLLM's gRPC protocol on the router's port, as gRPC sees it. Prompts
// become requests of the same kind as Generate's, with the same tenants, limits, queues and accounts.
// Requests come raw (router/api/wire.h). gRPC's threads never wait in it.
#pragma once

#include "router/api/request_driver.h"
#include "router/vllm/running_requests.h"
#include "vllm/control.grpc.pb.h"
#include "vllm/inference.grpc.pb.h"

namespace baton::router::vllm {

class InferenceService final
    : public ::vllm::Inference::WithRawCallbackMethod_Generate<
          ::vllm::Inference::WithRawCallbackMethod_GenerateStream<::vllm::Inference::Service>> {
 public:
  // Both outlive it.
  InferenceService(const CallContext& context, RunningRequests& running)
      : context_(context), running_(running) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override;

 private:
  const CallContext& context_;
  RunningRequests& running_;
};

class ControlService final : public ::vllm::Control::WithCallbackMethod_GetServerInfo<
                                 ::vllm::Control::WithCallbackMethod_GetModelInfo<
                                     ::vllm::Control::WithCallbackMethod_Abort<::vllm::Control::Service>>> {
 public:
  // Both outlive it.
  ControlService(const CallContext& context, RunningRequests& running)
      : context_(context), running_(running) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const ::vllm::GetServerInfoRequest* request,
                                          ::vllm::ServerInfo* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const ::vllm::GetModelInfoRequest* request,
                                         ::vllm::ModelInfo* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const ::vllm::AbortRequest* request,
                                  ::vllm::AbortResponse* response) override;

 private:
  // The caller, whose call is counted against its rate of requests.
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context) const;

  const CallContext& context_;
  RunningRequests& running_;
};

}  // namespace baton::router::vllm
