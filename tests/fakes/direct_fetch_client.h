// DirectFetchClient: holders of blocks in this very thread, without a network: real ones on engines of their
// own, whose events are delivered one by one when the test pumps, and damaged on the way as the script says.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "transfer/fetch/fetch_client.h"
#include "transfer/fetch/peer_server.h"

namespace baton::testing {

class DirectFetchClient final : public fetch::FetchClient {
 public:
  // Sees every event before the caller does. Returns an error to end the call there, or OK; it may change the
  // event, or repeat it through `again`.
  using Fault = std::function<absl::Status(int index, fleet::v1::FetchEvent& event, bool& again)>;

  // Both outlive the client.
  void AddPeer(const std::string& address, engine::Engine& engine, fetch::PeerServer& server) {
    peers_[address] = {&engine, &server};
  }
  void SetFault(Fault fault) { fault_ = std::move(fault); }
  // Nothing is delivered, as if the holder hung.
  void Hang(bool hangs) { hangs_ = hangs; }
  // The time that was given to every call is over.
  void PassDeadlines();

  std::unique_ptr<rpc::EventCall> Call(const std::string& address, fleet::v1::FetchRequest request,
                                       absl::Duration patience, const telemetry::TraceContext& trace,
                                       Callbacks callbacks) override;

  // One step of every holder, and one event of every call that waits for one. Returns whether anything
  // happened.
  bool Pump();
  size_t calls_started() const { return calls_started_; }
  absl::Duration last_patience() const { return last_patience_; }
  const telemetry::TraceContext& last_trace() const { return last_trace_; }

 private:
  struct Peer {
    engine::Engine* engine = nullptr;
    fetch::PeerServer* server = nullptr;
  };
  struct LiveCall {
    fetch::PeerServer* server = nullptr;
    Callbacks callbacks;
    std::deque<fleet::v1::FetchEvent> events;
    bool finished = false;
    absl::Status status;
    bool wants_next = true;
    bool let_go = false;
    int delivered = 0;
  };
  class Handle;

  std::map<std::string, Peer> peers_;
  std::map<fetch::FetchId, std::shared_ptr<LiveCall>> calls_;
  Fault fault_;
  bool hangs_ = false;
  fetch::FetchId next_id_ = 1;
  size_t calls_started_ = 0;
  absl::Duration last_patience_;
  telemetry::TraceContext last_trace_;
};

}  // namespace baton::testing
