#include "router/kserve/service.h"

#include <algorithm>

#include "common/base/build_info.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "router/api/grpc_credentials.h"
#include "router/api/usage.h"
#include "router/kserve/infer_call.h"
#include "router/kserve/infer_request.h"
#include "router/kserve/stream_infer_call.h"

namespace baton::router::kserve {
namespace {

using grpc::CallbackServerContext;

grpc::ServerUnaryReactor* Ended(CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(EndOf(status, context));
  return reactor;
}

void Describe(std::span<const TensorInfo> tensors,
              google::protobuf::RepeatedPtrField<inference::ModelMetadataResponse::TensorMetadata>* out) {
  for (const TensorInfo& tensor : tensors) {
    auto& described = *out->Add();
    described.set_name(tensor.name);
    described.set_datatype(tensor.datatype);
    described.add_shape(tensor.list ? -1 : 1);
  }
}

}  // namespace

absl::StatusOr<const ServedModel*> KserveService::Find(const grpc::ServerContextBase& context,
                                                       const std::string& name,
                                                       const std::string& version) const {
  BATON_ASSIGN_OR_RETURN(const Caller caller, context_.authenticator->Authenticate(CredentialsOf(context)));
  BATON_RETURN_IF_ERROR(context_.fleets.front().dispatcher->AdmitCheapCall(caller.tenant->id));
  BATON_RETURN_IF_ERROR(CheckVersion(version));
  return context_.preparer->models().Find(name, *caller.tenant);
}

bool KserveService::Ready(const ServedModel& model) const {
  return context_.fleets[model.fleet].dispatcher->serves();
}

grpc::ServerUnaryReactor* KserveService::ServerLive(CallbackServerContext* context,
                                                    const inference::ServerLiveRequest*,
                                                    inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Ended(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ServerReady(CallbackServerContext* context,
                                                     const inference::ServerReadyRequest*,
                                                     inference::ServerReadyResponse* response) {
  response->set_ready(std::ranges::any_of(context_.preparer->models().models(),
                                          [this](const auto& model) { return Ready(*model); }));
  return Ended(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ServerMetadata(CallbackServerContext* context,
                                                        const inference::ServerMetadataRequest*,
                                                        inference::ServerMetadataResponse* response) {
  response->set_name("baton");
  response->set_version(GetBuildInfo().version);
  return Ended(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ModelReady(CallbackServerContext* context,
                                                    const inference::ModelReadyRequest* request,
                                                    inference::ModelReadyResponse* response) {
  const auto model = Find(*context, request->name(), request->version());
  if (model.ok()) response->set_ready(Ready(**model));
  return Ended(context, model.status());
}

grpc::ServerUnaryReactor* KserveService::ModelMetadata(CallbackServerContext* context,
                                                       const inference::ModelMetadataRequest* request,
                                                       inference::ModelMetadataResponse* response) {
  const auto model = Find(*context, request->name(), request->version());
  if (model.ok()) {
    response->set_name((*model)->name);
    response->add_versions("1");
    response->set_platform("baton");
    Describe(Inputs(), response->mutable_inputs());
    Describe(Outputs(), response->mutable_outputs());
  }
  return Ended(context, model.status());
}

grpc::ServerUnaryReactor* KserveService::ModelInfer(CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return InferCall::Start(context_, context, *request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* KserveService::ModelStreamInfer(
    CallbackServerContext* context) {
  return StreamInferCall::Start(context_, context);
}

}  // namespace baton::router::kserve
