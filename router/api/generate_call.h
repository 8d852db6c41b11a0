// GenerateCall: drives one RequestFlow between gRPC, the dispatcher and the decode workers. It is the reactor
// of the client's call. Events may come on any thread at any time; they are queued and handled one after the
// other by whichever thread found the queue idle, without a lock held, so nothing waits and an action may
// cause further events. Keeps itself alive until gRPC is done with it; callbacks of others hold shared_ptrs.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/decode.grpc.pb.h"
#include "common/base/clock.h"
#include "common/rpc/client_stream.h"
#include "router/api/executor.h"
#include "router/api/live_calls.h"
#include "router/api/request_flow.h"
#include "router/api/request_preparer.h"
#include "router/dispatch/dispatcher.h"
#include "router/metrics/probe.h"
#include "router/tenancy/authenticator.h"

namespace baton::router {

// What every call uses; all of it outlives the calls.
struct CallContext {
  const Authenticator* authenticator = nullptr;
  const RequestPreparer* preparer = nullptr;
  Dispatcher* dispatcher = nullptr;
  const fleet::Fleet* fleet = nullptr;
  Executor* executor = nullptr;
  const Clock* clock = nullptr;
  Probe* probe = nullptr;
  LiveCalls* live = nullptr;
  std::string router_id;
  int max_attempts = 3;
  int max_migrations = 3;
  absl::Duration client_stall = absl::InfiniteDuration();
};

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public LiveCall,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // Handles `request`, a Request in bytes; return the result from the service method. Request is
  // GenerateRequest or ChatRequest.
  template <typename Request>
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(const CallContext* context,
                                                           grpc::CallbackServerContext* server_context,
                                                           const grpc::ByteBuffer& bytes);

 private:
  using Stream = rpc::ClientStream<v1::DecodeRequest, v1::DecodeEvent>;
  using Event = std::function<Actions(RequestFlow&)>;

  GenerateCall(const CallContext* context, grpc::CallbackServerContext* server_context);

  template <typename Request>
  void Receive(const grpc::ServerContextBase& server_context, const grpc::ByteBuffer& bytes);
  // Parses and checks.
  template <typename Request>
  absl::Status Read(const grpc::ByteBuffer& bytes, Request* request) const;
  // Renders and tokenizes. False: on its way it found that the call is over.
  template <typename Request>
  bool Prepare(const Request& request);
  void Refuse(absl::Status status);
  // Whether the client still waits for an answer. Any thread.
  bool Wanted() const;
  void Post(Event event);

  // Performing actions: only the thread that drains the inbox.
  void Perform(Action& action);
  void Serialize(const v1::GenerateResponse& response);
  // The request is over but for its last message on the way.
  void Settle();
  void Do(Submit&);
  void Do(Requeue& requeue);
  void Do(Withdraw&);
  void Do(Dial& dial);
  void Do(ReadNext& next);
  void Do(HangUp& hang_up);
  void Do(Write& write);
  void Do(WriteLast& last);
  void Do(Break& break_off);
  void Do(router::Finish& finish);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  std::function<void()> IfStalled(absl::Time now) override;

  const CallContext* const context_;
  grpc::CallbackServerContext* const server_context_;  // lives until OnDone
  std::atomic<int64_t> writing_since_{0};              // nanoseconds on our clock; 0: not writing
  std::atomic<bool> cancelled_{false};
  const LiveCalls::Guard alive_;  // before, so destroyed after, all that shutdown waits for
  const std::chrono::system_clock::time_point wire_deadline_;

  absl::Mutex mutex_;
  std::deque<Event> inbox_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<GenerateCall> self_;  // until OnDone

  std::shared_ptr<const Tenant> tenant_;  // set before anything else happens
  // The draining thread's.
  RequestFlow flow_;
  std::shared_ptr<DispatchRequest> request_;
  std::vector<admission::EntryId> entries_;       // by choice
  std::optional<admission::EntryId> account_;     // to be settled
  std::vector<std::shared_ptr<Stream>> streams_;  // by choice
  grpc::ByteBuffer outgoing_;
};

}  // namespace baton::router
