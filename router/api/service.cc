#include "router/api/service.h"

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/status.h"
#include "router/api/call_name.h"
#include "router/api/folded_call.h"
#include "router/api/grpc_credentials.h"
#include "router/api/inflate.h"
#include "router/api/moderate_call.h"
#include "router/api/usage.h"
#include "router/api/wire.h"

namespace baton::router {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

namespace {

// The prompt of the request in `asked`, a CountTokensRequest or TokenizeRequest.
template <typename Asked>
absl::StatusOr<RequestPreparer::Prompt> PromptOf(const RequestPreparer& preparer, const Tenant& tenant,
                                                 const RequestPreparer::Wanted& wanted, Asked* asked) {
  switch (asked->request_case()) {
    case Asked::kChat:
      BATON_RETURN_IF_ERROR(preparer.models().Resolve(tenant, asked->mutable_chat()));
      return preparer.PromptOf(asked->chat(), tenant, wanted);
    case Asked::kGenerate:
      BATON_RETURN_IF_ERROR(preparer.models().Resolve(tenant, asked->mutable_generate()));
      return preparer.PromptOf(asked->generate(), tenant, wanted);
    default:
      return absl::InvalidArgumentError("request: missing; set chat or generate");
  }
}

}  // namespace

grpc::ServerWriteReactor<ByteBuffer>* InferenceService::Generate(CallbackServerContext* context,
                                                                 const ByteBuffer* request) {
  return GenerateCall::Start<v1::GenerateRequest>(context_, "Generate", context, *request);
}

grpc::ServerWriteReactor<ByteBuffer>* InferenceService::Chat(CallbackServerContext* context,
                                                             const ByteBuffer* request) {
  return GenerateCall::Start<v1::ChatRequest>(context_, "Chat", context, *request);
}

grpc::ServerUnaryReactor* InferenceService::ChatUnary(CallbackServerContext* context,
                                                      const ByteBuffer* request, ByteBuffer* response) {
  return FoldedCall::Start<v1::ChatUnaryRequest>(context_, "ChatUnary", context, *request, response);
}

grpc::ServerUnaryReactor* InferenceService::GenerateUnary(CallbackServerContext* context,
                                                          const ByteBuffer* request, ByteBuffer* response) {
  return FoldedCall::Start<v1::GenerateUnaryRequest>(context_, "GenerateUnary", context, *request, response);
}

grpc::ServerWriteReactor<ByteBuffer>* InferenceService::Resume(CallbackServerContext* context,
                                                               const ByteBuffer* request) {
  return GenerateCall::Resume(context_, context, *request);
}

absl::StatusOr<std::shared_ptr<const Tenant>> InferenceService::AuthenticateCheapCall(
    const grpc::ServerContextBase& context) const {
  BATON_ASSIGN_OR_RETURN(Caller caller, context_.authenticator->Authenticate(CredentialsOf(context)));
  BATON_RETURN_IF_ERROR(context_.fleets.front().dispatcher->AdmitCheapCall(caller.tenant->id));
  return std::move(caller.tenant);
}

template <typename Request, typename Work>
grpc::ServerUnaryReactor* InferenceService::Answer(CallbackServerContext* context, const ByteBuffer* request,
                                                   ByteBuffer* response, Work work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Time deadline = DeadlineOf(*context, *context_.clock);
  const auto finish = [reactor, context, clock = context_.clock, deadline,
                       name = NameCall(*context)](const absl::Status& status) {
    if (status.ok()) Announce(name, context);
    const bool late = absl::IsCancelled(status) && clock->Now() >= deadline;
    const absl::Status end =
        late ? absl::DeadlineExceededError("the deadline passed before the call's turn came") : status;
    reactor->Finish(EndOf(rpc::WithRequestId(end, name.id), context));
  };
  const auto tenant = AuthenticateCheapCall(*context);
  if (!tenant.ok()) {
    finish(tenant.status());
    return reactor;
  }
  // The context lives until the call was finished, which the job alone does.
  const RequestPreparer::Wanted wanted = [context, clock = context_.clock, deadline] {
    return !context->IsCancelled() && clock->Now() < deadline;
  };
  Executor::Job job;
  job.tenant = (*tenant)->id;
  job.bytes = RequestBytes(*request);
  job.wanted = wanted;
  job.work = [finish, request, response, wanted, work, tenant = *tenant] {
    auto parsed = std::make_unique<Request>();
    absl::Status status = ParseMessage(*request, parsed.get());
    if (status.ok()) {
      const auto answer = work(*parsed, *tenant, wanted);
      if (answer.ok()) *response = SerializeMessage(*answer);
      status = answer.status();
    }
    parsed = nullptr;
    finish(status);
    return !absl::IsCancelled(status);
  };
  job.drop = [finish] { finish(absl::CancelledError("the call was over before its turn came")); };
  if (!context_.executor->TrySubmit(std::move(job))) {
    finish(context_.executor->Full());
  }
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::CountTokens(CallbackServerContext* context,
                                                        const ByteBuffer* request, ByteBuffer* response) {
  return Answer<v1::CountTokensRequest>(
      context, request, response,
      [preparer = context_.preparer](
          v1::CountTokensRequest& parsed, const Tenant& tenant,
          const RequestPreparer::Wanted& wanted) -> absl::StatusOr<v1::CountTokensResponse> {
        BATON_ASSIGN_OR_RETURN(RequestPreparer::Prompt prompt, PromptOf(*preparer, tenant, wanted, &parsed));
        v1::CountTokensResponse answer;
        answer.set_prompt_tokens(static_cast<uint32_t>(prompt.tokens.size()));
        if (prompt.context.has_value()) *answer.mutable_context() = *std::move(prompt.context);
        return answer;
      });
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(CallbackServerContext* context,
                                                     const ByteBuffer* request, ByteBuffer* response) {
  return Answer<v1::TokenizeRequest>(
      context, request, response,
      [preparer = context_.preparer](
          v1::TokenizeRequest& parsed, const Tenant& tenant,
          const RequestPreparer::Wanted& wanted) -> absl::StatusOr<v1::TokenizeResponse> {
        BATON_ASSIGN_OR_RETURN(RequestPreparer::Prompt prompt, PromptOf(*preparer, tenant, wanted, &parsed));
        v1::TokenizeResponse answer;
        answer.mutable_token_ids()->Reserve(static_cast<int>(prompt.tokens.size()));
        for (const TokenId token : prompt.tokens) answer.add_token_ids(token.value());
        answer.set_text(std::move(prompt.text));
        if (prompt.context.has_value()) *answer.mutable_context() = *std::move(prompt.context);
        return answer;
      });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(CallbackServerContext* context,
                                                       const ByteBuffer* request, ByteBuffer* response) {
  return Answer<v1::DetokenizeRequest>(
      context, request, response,
      [preparer = context_.preparer](
          v1::DetokenizeRequest& parsed, const Tenant& tenant,
          const RequestPreparer::Wanted&) -> absl::StatusOr<v1::DetokenizeResponse> {
        BATON_RETURN_IF_ERROR(preparer->models().Resolve(tenant, &parsed));
        return preparer->Detokenize(parsed);
      });
}

grpc::ServerUnaryReactor* InferenceService::Moderate(CallbackServerContext* context,
                                                     const ByteBuffer* request, ByteBuffer* response) {
  return ModerateCall::Start(context_, context, context_.authenticator->Authenticate(CredentialsOf(*context)),
                             *request, response);
}

grpc::ServerUnaryReactor* InferenceService::ListModels(CallbackServerContext* context,
                                                       const ByteBuffer* request, ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const CallName name = NameCall(*context);
  v1::ListModelsRequest parsed;
  const auto tenant = AuthenticateCheapCall(*context);
  absl::Status status = tenant.status();
  if (status.ok()) status = ParseMessage(*request, &parsed, kMaxShortMessage);
  if (!status.ok()) {
    reactor->Finish(EndOf(rpc::WithRequestId(status, name.id), context));
    return reactor;
  }
  v1::ListModelsResponse answer;
  for (const auto& model : context_.preparer->models().models()) {
    if (!model->MayUse(**tenant)) continue;
    v1::ModelInfo* info = answer.add_models();
    info->set_name(model->name);
    info->set_context_tokens(static_cast<uint32_t>(model->context));
    info->set_vocabulary_tokens(static_cast<uint32_t>(model->vocabulary));
    if (model->output.format->name != "none")
      info->set_output_format(std::string(model->output.format->name));
    info->set_tools(model->output.tools);
    info->set_thinking(model->output.thinking);
    info->set_constraints(model->grammars != nullptr && model->grammars->available());
    info->set_strict_tools(model->strict_tools);
    if (model->classifier != nullptr) info->set_classifier(std::string(model->classifier->name));
    if (context_.prices != nullptr) {
      if (const auto price = context_.prices->Find(model->name)) *info->mutable_prices() = PricesOf(*price);
    }
    for (const std::string_view part : model->unstable_history) info->add_unstable_history(std::string(part));
    const auto view = context_.fleets[model->fleet].fleet->view();
    info->set_ready_prefill_workers(static_cast<uint32_t>(view->prefill.size()));
    info->set_ready_decode_workers(static_cast<uint32_t>(view->decode.size()));
    info->set_chunk_reuse(view->chunk_reuse && !view->decode.empty());
    if (!view->decode.empty()) info->set_build(model->BuildWith(view->answer_digest));
  }
  *response = SerializeMessage(answer);
  Announce(name, context);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace baton::router
