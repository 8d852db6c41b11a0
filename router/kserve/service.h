// KserveService: KServe's protocol on the router's port, as gRPC sees it. Prompts become requests of the same
// kind as Generate's, with the same tenants, limits, queues and accounts. Requests come raw
// (router/api/wire.h). gRPC's threads never wait in it.
#pragma once

#include "kserve/v2.grpc.pb.h"
#include "router/api/request_driver.h"

namespace baton::router::kserve {

using Kserve = inference::GRPCInferenceService;

class KserveService final
    : public Kserve::WithCallbackMethod_ServerLive<Kserve::WithCallbackMethod_ServerReady<
          Kserve::WithCallbackMethod_ServerMetadata<Kserve::WithCallbackMethod_ModelReady<
              Kserve::WithCallbackMethod_ModelMetadata<Kserve::WithRawCallbackMethod_ModelInfer<
                  Kserve::WithRawCallbackMethod_ModelStreamInfer<Kserve::Service>>>>>>> {
 public:
  // The context outlives it.
  explicit KserveService(const CallContext& context) : context_(context) {}

  // To anybody: what probes ask.
  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const inference::ServerLiveRequest* request,
                                       inference::ServerLiveResponse* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const inference::ServerReadyRequest* request,
                                        inference::ServerReadyResponse* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const inference::ServerMetadataRequest* request,
                                           inference::ServerMetadataResponse* response) override;
  // To tenants.
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      grpc::CallbackServerContext* context) override;

 private:
  // The model that a tenant asks about. NOT_FOUND: no such model, or no such version.
  absl::StatusOr<const ServedModel*> Find(const grpc::ServerContextBase& context, const std::string& name,
                                          const std::string& version) const;
  bool Ready(const ServedModel& model) const;

  const CallContext& context_;
};

}  // namespace baton::router::kserve
