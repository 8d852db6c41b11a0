#include "router/vllm/calls.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "router/api/grpc_credentials.h"
#include "router/api/wire.h"
#include "router/vllm/request.h"

namespace baton::router::vllm {
namespace {

// The caller, beyond the life of the call's metadata.
struct Owner {
  std::string key;
  std::vector<std::string> certificate_names;

  explicit Owner(const grpc::ServerContextBase& context) {
    const Credentials shown = CredentialsOf(context);
    key = std::string(shown.key);
    certificate_names = shown.certificate_names;
  }
  // The tenant: it was found once, for the call is under way.
  absl::StatusOr<admission::TenantId> Tenant(const Authenticator& authenticator) const {
    BATON_ASSIGN_OR_RETURN(const Caller caller,
                           authenticator.Authenticate({.key = key, .certificate_names = certificate_names}));
    return caller.tenant->id;
  }
};

// Both calls' reading of their bytes: fills the request and its answer's shape, then enters its name among
// those that run. `end`: of the call, which may be gone by then; it may come at once.
absl::Status Read(const grpc::ByteBuffer& bytes, bool stream, const CallContext& context, const Owner& owner,
                  RunningRequests& running, RunningRequests::End end, v1::GenerateRequest* request,
                  std::optional<Answer>* answer, RunningRequests::Guard* guard) {
  ::vllm::GenerateRequest given;
  BATON_RETURN_IF_ERROR(ParseMessage(bytes, &given));
  BATON_ASSIGN_OR_RETURN(Request read, ReadRequest(given, stream));
  *request = std::move(read.request);
  answer->emplace(std::move(read.shape));
  if (read.id.empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const admission::TenantId tenant, owner.Tenant(*context.authenticator));
  *guard = running.Add(tenant, read.id, std::move(end));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamCall::Start(const CallContext& context,
                                                              RunningRequests& running,
                                                              grpc::CallbackServerContext* server_context,
                                                              const grpc::ByteBuffer& bytes) {
  const std::shared_ptr<StreamCall> call(new StreamCall(server_context));
  // The driver keeps the call until it has finished it.
  return Run<v1::GenerateRequest>(
      call, context, "vllm.GenerateStream", server_context, bytes,
      [&context, &running, call = call.get(), weak = std::weak_ptr<StreamCall>(call),
       owner = Owner(*server_context)](const grpc::ByteBuffer& held, v1::GenerateRequest* request) {
        const auto end = [weak] {
          const std::shared_ptr<StreamCall> ended = weak.lock();
          if (ended == nullptr) return;
          ended->aborted_ = true;
          ended->Cancel();
        };
        return Read(held, /*stream=*/true, context, owner, running, end, request, &call->answer_,
                    &call->running_);
      });
}

std::optional<grpc::ByteBuffer> StreamCall::Show(const v1::GenerateResponse& response) {
  const auto message = answer_->Piece(response);
  if (!message.has_value()) return std::nullopt;
  return SerializeMessage(*message);
}

std::optional<grpc::ByteBuffer> StreamCall::ShowFailure(const absl::Status& status) {
  if (!aborted_ || !absl::IsCancelled(status) || !answer_.has_value()) return std::nullopt;
  return SerializeMessage(answer_->Aborted());
}

grpc::ServerUnaryReactor* WholeCall::Start(const CallContext& context, RunningRequests& running,
                                           grpc::CallbackServerContext* server_context,
                                           const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response) {
  const std::shared_ptr<WholeCall> call(new WholeCall(*server_context, *response));
  // The driver keeps the call until it has finished it.
  return Run<v1::GenerateRequest>(
      call, context, "vllm.Generate", bytes,
      [&context, &running, call = call.get(), weak = std::weak_ptr<WholeCall>(call),
       owner = Owner(*server_context)](const grpc::ByteBuffer& held, v1::GenerateRequest* request) {
        const auto end = [weak] {
          const std::shared_ptr<WholeCall> ended = weak.lock();
          if (ended == nullptr) return;
          ended->aborted_ = true;
          ended->Cancel();
        };
        return Read(held, /*stream=*/false, context, owner, running, end, request, &call->answer_,
                    &call->running_);
      });
}

grpc::ByteBuffer WholeCall::Answer() { return SerializeMessage(answer_->whole()); }

std::optional<grpc::ByteBuffer> WholeCall::AnswerTo(const absl::Status& status) {
  if (!aborted_ || !absl::IsCancelled(status) || !answer_.has_value()) return std::nullopt;
  return SerializeMessage(answer_->Aborted());
}

}  // namespace baton::router::vllm
