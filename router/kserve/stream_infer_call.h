// StreamInferCall: a call of ModelStreamInfer as gRPC sees it: the reactor of a stream that carries several
// requests at a time, each with a driver of its own. Messages leave one at a time, in the order in which
// drivers wrote them; a driver has one on its way at most, so what waits here is bounded by the number of
// requests. A request that fails is a message, and the others go on; with the metadata `triton_grpc_error:
// true` it ends the stream with its status. Keeps itself alive until gRPC is done with it; drivers may hold
// it longer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "router/api/client_stream.h"
#include "router/api/request_driver.h"
#include "router/kserve/infer_answer.h"

namespace baton::router::kserve {

class StreamInferCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public std::enable_shared_from_this<StreamInferCall> {
 public:
  // Requests of one stream that run or wait at a time; the next is read when one has ended.
  static constexpr size_t kMaxTurns = 64;

  // Return the result from the service method.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      const CallContext& context, grpc::CallbackServerContext* server_context);

 private:
  class Turn;
  struct Outgoing {
    grpc::ByteBuffer bytes;
    std::shared_ptr<Turn> turn;
    bool last = false;  // of its turn
  };

  StreamInferCall(const CallContext& context, grpc::CallbackServerContext* server_context);

  // From turns.
  void Send(std::shared_ptr<Turn> turn, const inference::ModelStreamInferResponse& message);
  // `message` is its last one. Not OK: it has failed.
  void End(std::shared_ptr<Turn> turn, const inference::ModelStreamInferResponse& message,
           const absl::Status& status);
  // The client takes nothing: ends the stream past flow control.
  void Break(const absl::Status& status);

  // Reactions, called by gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Begin(grpc::ByteBuffer bytes);
  void Push(Outgoing outgoing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drivers of all turns, to be told without the lock that nobody waits for them.
  std::vector<std::shared_ptr<RequestDriver>> Drivers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallContext& context_;
  const bool fails_as_status_;
  grpc::ByteBuffer incoming_;  // the read's that is out
  absl::Mutex mutex_;
  grpc::CallbackServerContext* server_context_ ABSL_GUARDED_BY(mutex_);  // null once gRPC is done
  absl::flat_hash_set<std::shared_ptr<Turn>> turns_ ABSL_GUARDED_BY(mutex_);
  std::deque<Outgoing> outbox_ ABSL_GUARDED_BY(mutex_);  // the first one is on its way
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;  // requests
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StreamInferCall> self_;  // until OnDone
};

}  // namespace baton::router::kserve
