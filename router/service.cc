#include "router/service.h"

#include <memory>
#include <utility>

#include "common/rpc/status.h"
#include "router/wire.h"

namespace baton::router {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

grpc::ServerWriteReactor<ByteBuffer>* InferenceService::Generate(CallbackServerContext* context,
                                                                 const ByteBuffer* request) {
  return GenerateCall::Start<v1::GenerateRequest>(context_, context, *request);
}

grpc::ServerWriteReactor<ByteBuffer>* InferenceService::Chat(CallbackServerContext* context,
                                                             const ByteBuffer* request) {
  return GenerateCall::Start<v1::ChatRequest>(context_, context, *request);
}

void InferenceService::Answer(grpc::ServerUnaryReactor* reactor, size_t bytes,
                              std::function<grpc::Status()> work) {
  if (!context_->executor->TryRun(bytes, [reactor, work = std::move(work)] { reactor->Finish(work()); })) {
    reactor->Finish(rpc::ToGrpc(rpc::WithRetryDelay(
        absl::ResourceExhaustedError("too many prompts wait to be tokenized; try again later"),
        absl::Milliseconds(200))));
  }
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(CallbackServerContext* context,
                                                     const ByteBuffer* request, ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto parsed = std::make_shared<v1::TokenizeRequest>();
  absl::Status status = context_->door->EnterCheaply(*context).status();
  if (status.ok()) status = ParseMessage(*request, parsed.get());
  if (status.ok()) status = context_->reception->Check(*parsed);
  if (!status.ok()) {
    reactor->Finish(rpc::ToGrpc(status));
    return reactor;
  }
  Answer(reactor, request->Length(), [this, parsed, response] {
    const auto answer = context_->reception->Tokenize(*parsed);
    if (answer.ok()) *response = SerializeMessage(*answer);
    return rpc::ToGrpc(answer.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(CallbackServerContext* context,
                                                       const ByteBuffer* request, ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto parsed = std::make_shared<v1::DetokenizeRequest>();
  absl::Status status = context_->door->EnterCheaply(*context).status();
  if (status.ok()) status = ParseMessage(*request, parsed.get());
  if (!status.ok()) {
    reactor->Finish(rpc::ToGrpc(status));
    return reactor;
  }
  Answer(reactor, request->Length(), [this, parsed, response] {
    const auto answer = context_->reception->Detokenize(*parsed);
    if (answer.ok()) *response = SerializeMessage(*answer);
    return rpc::ToGrpc(answer.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::ListModels(CallbackServerContext* context,
                                                       const ByteBuffer* request, ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  v1::ListModelsRequest parsed;
  absl::Status status = context_->door->EnterCheaply(*context).status();
  if (status.ok()) status = ParseMessage(*request, &parsed);
  if (!status.ok()) {
    reactor->Finish(rpc::ToGrpc(status));
    return reactor;
  }
  const ServedModel& model = context_->reception->model();
  const auto view = fleet_->view();
  v1::ListModelsResponse answer;
  v1::ModelInfo* info = answer.add_models();
  info->set_name(model.name);
  info->set_context_tokens(static_cast<uint32_t>(model.context));
  info->set_vocabulary_tokens(static_cast<uint32_t>(model.vocabulary));
  info->set_ready_prefill_workers(static_cast<uint32_t>(view->prefill.size()));
  info->set_ready_decode_workers(static_cast<uint32_t>(view->decode.size()));
  *response = SerializeMessage(answer);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace baton::router
