// PrefillClient: how a decode worker calls prefill workers. The seam lets the hand-off be tested without a
// network: the scripted client of the tests and GrpcPrefillClient both pass events on the engine thread, one
// at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/v1/prefill.grpc.pb.h"
#include "common/engine/loop.h"
#include "common/rpc/security.h"

namespace baton::decode_service {

// One call, from start to end. Destroying it cancels the call if it still runs; no callback comes after that.
class PrefillCall {
 public:
  virtual ~PrefillCall() = default;
  // The event has been dealt with: the next one may come.
  virtual void Next() = 0;
};

class PrefillClient {
 public:
  struct Callbacks {
    std::function<void(v1::PrefillEvent)> event;
    // Exactly once, last. OK: the worker has sent everything.
    std::function<void(absl::Status)> done;
  };
  virtual ~PrefillClient() = default;
  // Starts a call. Callbacks come on the engine thread, after Call has returned.
  virtual std::unique_ptr<PrefillCall> Call(const std::string& address, v1::PrefillRequest request,
                                            absl::Time deadline, Callbacks callbacks) = 0;
};

// Over gRPC, with one channel per address, kept for the next call. Engine thread; events are posted to
// `loop`. Its destructor waits for calls that were let go to come to their end inside gRPC.
class GrpcPrefillClient final : public PrefillClient {
 public:
  // Both outlive it.
  GrpcPrefillClient(engine::Loop& loop, const rpc::Security& security) : loop_(loop), security_(security) {}
  ~GrpcPrefillClient() override;
  std::unique_ptr<PrefillCall> Call(const std::string& address, v1::PrefillRequest request,
                                    absl::Time deadline, Callbacks callbacks) override;

 private:
  // Peers come and go; a worker that talks to more than this many starts its channels anew.
  static constexpr size_t kMaxPeers = 1024;

  struct Outstanding {
    absl::Mutex mutex;
    int calls ABSL_GUARDED_BY(mutex) = 0;
  };

  engine::Loop& loop_;
  const rpc::Security& security_;
  const std::shared_ptr<Outstanding> outstanding_ = std::make_shared<Outstanding>();
  absl::flat_hash_map<std::string, std::shared_ptr<v1::Prefill::Stub>> stubs_;
};

}  // namespace baton::decode_service
