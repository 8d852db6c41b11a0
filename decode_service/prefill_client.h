// PrefillClient: how a decode worker calls prefill workers. The seam lets the hand-off be tested without a
// network: the scripted client of the tests and GrpcPrefillClient both pass events on the engine thread, one
// at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "baton/v1/prefill.grpc.pb.h"
#include "common/engine/loop.h"
#include "common/rpc/posted_calls.h"
#include "common/rpc/security.h"

namespace baton::decode_service {

using PrefillCall = rpc::EventCall;

class PrefillClient {
 public:
  using Callbacks = rpc::EventCallbacks<v1::PrefillEvent>;
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
  GrpcPrefillClient(engine::Loop& loop, const rpc::Security& security)
      : security_(security), calls_([&loop](engine::Loop::Task task) { loop.PostAlways(std::move(task)); }) {}
  std::unique_ptr<PrefillCall> Call(const std::string& address, v1::PrefillRequest request,
                                    absl::Time deadline, Callbacks callbacks) override;

 private:
  // Peers come and go; a worker that talks to more than this many starts its channels anew.
  static constexpr size_t kMaxPeers = 1024;

  const rpc::Security& security_;
  absl::flat_hash_map<std::string, std::shared_ptr<v1::Prefill::Stub>> stubs_;
  rpc::PostedCalls<v1::PrefillRequest, v1::PrefillEvent> calls_;
};

}  // namespace baton::decode_service
