#include "common/rpc/health_list.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server_builder.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.pb.h"

namespace baton::rpc {

using grpc::health::v1::HealthCheckResponse;
using grpc::health::v1::HealthListRequest;
using grpc::health::v1::HealthListResponse;

// As generated code would register it, but for the other methods, which are the library's.
class HealthList::Impl final : public grpc::Service {
 public:
  Impl() {
    AddMethod(new grpc::internal::RpcServiceMethod("/grpc.health.v1.Health/List",
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodCallback(0, new grpc::internal::CallbackUnaryHandler<HealthListRequest, HealthListResponse>(
                              [this](grpc::CallbackServerContext* context, const HealthListRequest*,
                                     HealthListResponse* response) {
                                {
                                  absl::MutexLock lock(&mutex_);
                                  *response = said_;
                                }
                                grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
                                reactor->Finish(grpc::Status::OK);
                                return reactor;
                              }));
  }

  void Set(const std::string& service, bool serving) {
    absl::MutexLock lock(&mutex_);
    (*said_.mutable_statuses())[service].set_status(serving ? HealthCheckResponse::SERVING
                                                            : HealthCheckResponse::NOT_SERVING);
  }

 private:
  absl::Mutex mutex_;
  HealthListResponse said_ ABSL_GUARDED_BY(mutex_);
};

HealthList::HealthList() : impl_(std::make_unique<Impl>()) {}
HealthList::~HealthList() = default;

void HealthList::AddTo(grpc::ServerBuilder& builder) { builder.RegisterService(impl_.get()); }

void HealthList::Set(const std::string& service, bool serving) { impl_->Set(service, serving); }

}  // namespace baton::rpc
