// InferenceService: the public endpoint, as gRPC sees it. Requests come raw (see wire.h). Chat and Generate
// become a GenerateCall, as Resume does, ChatUnary and GenerateUnary a FoldedCall; CountTokens, Tokenize and
// Detokenize run on the executor, ListModels is answered at once. gRPC's threads never wait in it.
#pragma once

#include "baton/v1/inference.grpc.pb.h"
#include "router/api/generate_call.h"

namespace baton::router {

class InferenceService final
    : public v1::Inference::WithRawCallbackMethod_Chat<v1::Inference::WithRawCallbackMethod_ChatUnary<
          v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::WithRawCallbackMethod_GenerateUnary<
              v1::Inference::WithRawCallbackMethod_CountTokens<v1::Inference::WithRawCallbackMethod_Tokenize<
                  v1::Inference::WithRawCallbackMethod_Detokenize<
                      v1::Inference::WithRawCallbackMethod_Moderate<
                          v1::Inference::WithRawCallbackMethod_ListModels<
                              v1::Inference::WithRawCallbackMethod_Resume<v1::Inference::Service>>>>>>>>>> {
 public:
  explicit InferenceService(const CallContext& context) : context_(context) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Chat(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ChatUnary(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* GenerateUnary(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Resume(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* CountTokens(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Moderate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  // The tenant of a call that needs no worker, which is counted against the tenant's rate of requests.
  absl::StatusOr<std::shared_ptr<const Tenant>> AuthenticateCheapCall(
      const grpc::ServerContextBase& context) const;
  // Finishes the call with what `work` makes of its request, on the executor.
  template <typename Request, typename Work>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response, Work work);

  const CallContext& context_;
};

}  // namespace baton::router
