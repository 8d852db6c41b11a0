#include "router/api/grpc_decode_client.h"

#include <grpcpp/channel.h>

#include <chrono>
#include <utility>

#include "baton/fleet/v1/decode.grpc.pb.h"
#include "common/base/check.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/trace_metadata.h"

namespace baton::router {
namespace {

using WorkerStream = rpc::ClientStream<baton::fleet::v1::DecodeRequest, baton::fleet::v1::DecodeEvent>;

class GrpcDecodeCall final : public DecodeCall {
 public:
  explicit GrpcDecodeCall(std::shared_ptr<WorkerStream> stream) : stream_(std::move(stream)) {}
  void Next() override { stream_->Next(); }
  void Cancel() override { stream_->Cancel(); }

 private:
  const std::shared_ptr<WorkerStream> stream_;
};

}  // namespace

std::shared_ptr<DecodeCall> GrpcDecodeClient::Call(const fleet::Worker& worker,
                                                   baton::fleet::v1::DecodeRequest request,
                                                   absl::Time deadline, const telemetry::TraceContext& trace,
                                                   Callbacks callbacks) {
  auto context = std::make_unique<grpc::ClientContext>();
  rpc::AddTrace(trace, context.get());
  if (deadline != absl::InfiniteFuture()) {
    context->set_deadline(std::chrono::system_clock::now() +
                          absl::ToChronoNanoseconds(deadline - clock_.Now()));
  }
  const std::shared_ptr<grpc::Channel>& channel = worker.identity().channel;
  BATON_CHECK(channel != nullptr);
  baton::fleet::v1::Decode::Stub stub(
      channel);  // the call keeps the channel, and needs no stub once it has begun
  return std::make_shared<GrpcDecodeCall>(
      WorkerStream::Call(std::move(request), std::move(context),
                         {.event = std::move(callbacks.event), .done = std::move(callbacks.done)},
                         [&stub](auto* context, auto* request, auto* reactor) {
                           stub.async()->Generate(context, request, reactor);
                         }));
}

}  // namespace baton::router
