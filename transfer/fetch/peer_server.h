// PeerServer: the end of a worker from which peers fetch blocks. It pins those blocks of a requested run that
// it has, ships them chunk by chunk, and releases them. Peers come after the worker's own requests: the
// number of fetches and the bytes per step are bounded, and when the worker itself needs blocks, MakeRoom
// ends all fetches. It never waits: a peer that takes nothing keeps its place until its call ends.
//
// clang-format off
//   Submit --blocks pinned, `found` sent--> shipping --last chunk sent--> gone
//   shipping --Cancel, Abort, MakeRoom------------------------------------> gone
// clang-format on
//
// No gRPC, no thread, no clock: driven by the engine's loop. Engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/fleet/v1/blocks.pb.h"
#include "common/rpc/event_sink.h"
#include "common/telemetry/tracer.h"
#include "engine/engine.h"
#include "transfer/fetch/probe.h"
#include "transfer/link.h"
#include "transfer/shipment.h"

namespace baton::fetch {

using FetchId = uint64_t;

// A fetch that a peer asks for. The base is the way back to the peer.
struct ServedFetch : rpc::EventSink<fleet::v1::FetchEvent> {
  std::shared_ptr<telemetry::RequestSpans> spans;  // null if the request is not recorded
  std::string request_id;
  std::vector<kv::BlockHash> hashes;
  protocol::Ticket ticket;
};

struct PeerServerOptions {
  // Fetches at once before Submit refuses.
  size_t max_fetches = 8;
  // Payload of one chunk message, and what is copied for peers in one step.
  int64_t max_chunk_bytes = 4 << 20;
  int64_t step_bytes = 4 << 20;
};

class PeerServer {
 public:
  // All outlive it.
  PeerServer(const PeerServerOptions& options, engine::Engine& engine, transfer::LinkSender& link,
             Probe& probe);
  ~PeerServer();

  // Pins the blocks of the run that are here, and tells how many they are and their leases, which the peer
  // takes on. RESOURCE_EXHAUSTED: the most fetches are being served already.
  absl::Status Submit(FetchId id, ServedFetch fetch);
  // Ends one without a message. Unknown ids are ignored.
  void Cancel(FetchId id);
  // Ships at most step_bytes. Returns whether there is more that peers would take.
  bool Step();
  // Ends all fetches with RESOURCE_EXHAUSTED, because the worker itself needs blocks. False if there was
  // none.
  bool MakeRoom();
  void Abort(const absl::Status& status);

  size_t serving() const { return serving_.size(); }

 private:
  struct Serving {
    ServedFetch fetch;
    std::vector<BlockId> blocks;  // pinned
    std::unique_ptr<transfer::Shipment> shipment;
    int64_t shipped = 0;
  };
  using Servings = std::map<FetchId, Serving>;  // in the order of arrival
  // The one place where pinned blocks are released.
  Servings::iterator End(Servings::iterator serving, Probe::Served outcome);

  const PeerServerOptions options_;
  engine::Engine& engine_;
  transfer::LinkSender& link_;
  Probe& probe_;
  Servings serving_;
};

}  // namespace baton::fetch
