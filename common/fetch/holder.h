// Holder: a worker as the one that peers fetch blocks from. It pins what it has of the run that is asked for,
// ships it chunk by chunk, and lets go. Peers come after everybody who is served here: a bounded number of
// fetches, a bounded number of bytes per step, and when its own worker wants for blocks, MakeRoom ends them
// all. It never waits: a peer that takes nothing keeps its place until its call ends.
//
//   Submit --pinned, found sent--> shipping --last chunk sent--> gone   (any --Cancel, Abort, MakeRoom-->
//   gone)
//
// No gRPC, no thread, no clock: driven by the engine's loop. Engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/blocks.pb.h"
#include "common/engine/engine.h"
#include "common/fetch/probe.h"
#include "common/rpc/event_sink.h"
#include "common/transfer/link.h"
#include "common/transfer/shipment.h"

namespace baton::fetch {

using FetchId = uint64_t;

// What a peer asks for. The base is the way back to it.
struct Ask : rpc::EventSink<v1::FetchEvent> {
  std::string request_id;
  std::vector<kv::BlockHash> hashes;
  transfer::Ticket ticket;
};

struct HolderOptions {
  // Fetches at once before Submit refuses.
  size_t most = 8;
  // Payload of one chunk message, and what is copied for peers in one step.
  int64_t max_chunk_bytes = 4 << 20;
  int64_t step_bytes = 4 << 20;
};

class Holder {
 public:
  // All outlive it.
  Holder(const HolderOptions& options, engine::Engine& engine, transfer::LinkSender& link, Probe& probe);
  ~Holder();

  // Pins what is here of the run. RESOURCE_EXHAUSTED: as many as may be are served already.
  absl::Status Submit(FetchId id, Ask ask);
  // Forgets one. Unknown ids are ignored.
  void Cancel(FetchId id);
  // Ships a little. Returns whether there is more that peers would take.
  bool Step();
  // Ends all with RESOURCE_EXHAUSTED, for the worker's own sake. False if there was none.
  bool MakeRoom();
  void Abort(const absl::Status& status);

  size_t serving() const { return serving_.size(); }

 private:
  struct Serving {
    Ask ask;
    std::vector<BlockId> blocks;  // pinned
    std::unique_ptr<transfer::Shipment> shipment;
    int64_t shipped = 0;
  };
  using Servings = std::map<FetchId, Serving>;  // in the order of arrival
  // The one place where pins are let go.
  Servings::iterator End(Servings::iterator serving, Probe::Served outcome);

  const HolderOptions options_;
  engine::Engine& engine_;
  transfer::LinkSender& link_;
  Probe& probe_;
  Servings serving_;
};

}  // namespace baton::fetch
