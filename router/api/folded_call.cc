#include "router/api/folded_call.h"

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "router/api/wire.h"

namespace baton::router {
namespace {

v1::ChatRequest* Asked(v1::ChatUnaryRequest* unary) { return unary->mutable_chat(); }
v1::GenerateRequest* Asked(v1::GenerateUnaryRequest* unary) { return unary->mutable_generate(); }

}  // namespace

template <typename Unary>
grpc::ServerUnaryReactor* FoldedCall::Start(const CallContext& context, std::string_view method,
                                            grpc::CallbackServerContext* server_context,
                                            const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response) {
  using Request = std::remove_pointer_t<decltype(Asked(static_cast<Unary*>(nullptr)))>;
  const std::shared_ptr<FoldedCall> call(new FoldedCall(*server_context, *response));
  // The driver keeps the call until it has finished it.
  return Run<Request>(call, context, method, bytes,
                      [call = call.get()](const grpc::ByteBuffer& held, Request* request) -> absl::Status {
                        Unary unary;
                        BATON_RETURN_IF_ERROR(ParseMessage(held, &unary));
                        BATON_RETURN_IF_ERROR(call->Bound(unary.max_answer_bytes()));
                        *request = std::move(*Asked(&unary));
                        return absl::OkStatus();
                      });
}

template grpc::ServerUnaryReactor* FoldedCall::Start<v1::ChatUnaryRequest>(const CallContext&,
                                                                           std::string_view,
                                                                           grpc::CallbackServerContext*,
                                                                           const grpc::ByteBuffer&,
                                                                           grpc::ByteBuffer*);
template grpc::ServerUnaryReactor* FoldedCall::Start<v1::GenerateUnaryRequest>(const CallContext&,
                                                                               std::string_view,
                                                                               grpc::CallbackServerContext*,
                                                                               const grpc::ByteBuffer&,
                                                                               grpc::ByteBuffer*);

// A GenerateUnaryResponse has the fields of a ChatUnaryResponse.
grpc::ByteBuffer FoldedCall::Answer() { return SerializeMessage(fold_.answer()); }

}  // namespace baton::router
