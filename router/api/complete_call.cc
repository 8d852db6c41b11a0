#include "router/api/complete_call.h"

#include <memory>

#include "router/api/wire.h"

namespace baton::router {

grpc::ServerUnaryReactor* CompleteCall::Start(const CallContext& context,
                                              grpc::CallbackServerContext* server_context,
                                              const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response) {
  return Run<v1::ChatRequest>(
      std::shared_ptr<CompleteCall>(new CompleteCall(*server_context, *response)), context, "Complete", bytes,
      [](const grpc::ByteBuffer& held, v1::ChatRequest* request) { return ParseMessage(held, request); });
}

grpc::ByteBuffer CompleteCall::Answer() { return SerializeMessage(fold_.answer()); }

}  // namespace baton::router
