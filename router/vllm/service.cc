#include "router/vllm/service.h"

#include <string>

#include "common/base/build_info.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/block_hash.h"
#include "router/api/grpc_credentials.h"
#include "router/api/usage.h"
#include "router/vllm/calls.h"

namespace baton::router::vllm {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

// Version of that protocol.
constexpr char kApiVersion[] = "1";
// Bound on the requests of one Abort call.
constexpr int kMaxAborts = 1000;

grpc::ServerUnaryReactor* Ended(CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(EndOf(status, context));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(CallbackServerContext* context,
                                                     const ByteBuffer* request, ByteBuffer* response) {
  return WholeCall::Start(context_, running_, context, *request, response);
}

grpc::ServerWriteReactor<ByteBuffer>* InferenceService::GenerateStream(CallbackServerContext* context,
                                                                       const ByteBuffer* request) {
  return StreamCall::Start(context_, running_, context, *request);
}

absl::StatusOr<Caller> ControlService::Admit(const grpc::ServerContextBase& context) const {
  BATON_ASSIGN_OR_RETURN(Caller caller, context_.authenticator->Authenticate(CredentialsOf(context)));
  BATON_RETURN_IF_ERROR(context_.fleets.front().dispatcher->AdmitCheapCall(caller.tenant->id));
  return caller;
}

grpc::ServerUnaryReactor* ControlService::GetServerInfo(CallbackServerContext* context,
                                                        const ::vllm::GetServerInfoRequest*,
                                                        ::vllm::ServerInfo* response) {
  const auto caller = Admit(*context);
  if (!caller.ok()) return Ended(context, caller.status());
  const ServedModel& model = *context_.preparer->models().models().front();
  response->set_engine_version(std::string("baton ") + std::string(GetBuildInfo().version));
  response->set_api_version(kApiVersion);
  response->set_instance_id(context_.router_id);
  response->set_max_model_len(static_cast<uint32_t>(model.context));
  response->set_kv_block_size(kBlockTokens);
  uint64_t blocks = 0;
  const std::shared_ptr<const fleet::View> view = context_.fleets[model.fleet].fleet->view();
  for (const auto& worker : view->decode) {
    blocks += static_cast<uint64_t>(worker->TotalBlocks());
  }
  response->set_total_kv_blocks(blocks);
  return Ended(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlService::GetModelInfo(CallbackServerContext* context,
                                                       const ::vllm::GetModelInfoRequest*,
                                                       ::vllm::ModelInfo* response) {
  const auto caller = Admit(*context);
  if (!caller.ok()) return Ended(context, caller.status());
  const ServedModel& model = *context_.preparer->models().models().front();
  response->set_model_id(model.name);
  response->set_served_model_name(model.name);
  response->set_supports_text_input(true);
  response->set_supports_token_ids_input(true);
  const std::string format(model.output.format->name);
  if (model.output.thinking) response->set_reasoning_parser(format);
  if (model.output.tools) response->set_tool_call_parser(format);
  return Ended(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlService::Abort(CallbackServerContext* context,
                                                const ::vllm::AbortRequest* request, ::vllm::AbortResponse*) {
  const auto caller = Admit(*context);
  if (!caller.ok()) return Ended(context, caller.status());
  if (request->request_ids_size() > kMaxAborts) {
    return Ended(context,
                 absl::InvalidArgumentError("request_ids: more than 1000; call again with the rest"));
  }
  for (const std::string& id : request->request_ids()) running_.Abort(caller->tenant->id, id);
  return Ended(context, absl::OkStatus());
}

}  // namespace baton::router::vllm
