// FetchClient: how a worker asks a peer for blocks. A seam: the scripted client of the tests and
// GrpcFetchClient both pass events on the engine thread, one at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "baton/v1/blocks.grpc.pb.h"
#include "common/engine/loop.h"
#include "common/rpc/posted_calls.h"
#include "common/rpc/security.h"

namespace baton::fetch {

class FetchClient {
 public:
  using Callbacks = rpc::EventCallbacks<v1::FetchEvent>;
  virtual ~FetchClient() = default;
  // Starts a call. Callbacks come on the engine thread, after Call has returned. After `patience` the call
  // ends with DEADLINE_EXCEEDED.
  virtual std::unique_ptr<rpc::EventCall> Call(const std::string& address, v1::FetchRequest request,
                                               absl::Duration patience, Callbacks callbacks) = 0;
};

// Over gRPC, with one channel per address, kept for the next call. Engine thread; events are posted to
// `loop`. Its destructor waits for calls that were let go to come to their end inside gRPC.
class GrpcFetchClient final : public FetchClient {
 public:
  // Both outlive it.
  GrpcFetchClient(engine::Loop& loop, const rpc::Security& security)
      : security_(security), calls_([&loop](engine::Loop::Task task) { loop.PostAlways(std::move(task)); }) {}
  std::unique_ptr<rpc::EventCall> Call(const std::string& address, v1::FetchRequest request,
                                       absl::Duration patience, Callbacks callbacks) override;

 private:
  // Peers come and go; a worker that talks to more than this many starts its channels anew.
  static constexpr size_t kMaxPeers = 1024;

  const rpc::Security& security_;
  absl::flat_hash_map<std::string, std::shared_ptr<v1::Blocks::Stub>> stubs_;
  rpc::PostedCalls<v1::FetchRequest, v1::FetchEvent> calls_;
};

}  // namespace baton::fetch
