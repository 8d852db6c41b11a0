// DiskClient: the worker's own disk, as a peer that fetches ask: a call reads records on the reading thread
// of the disk tier and tells of them in the events of a peer (`found`, then chunks), so that whatever holds
// for a fetch holds for a load: tickets, checksums at landing, partial results, deadlines, cancelling. A call
// reads a few chunks ahead of what was handled; several take turns. A record that is not good any more ends
// its call with DATA_LOSS, behind the good ones. A disk that hangs ends it at its deadline.
//
// Engine thread. The tier and the loop outlive it, and its calls.
#pragma once

#include <memory>
#include <string>

#include "engine/kv/tier/disk_tier.h"
#include "engine/loop.h"
#include "transfer/fetch/fetch_client.h"

namespace baton::fetch {

class DiskClient final : public FetchClient {
 public:
  struct Options {
    int layers = 0;  // of a block
    // Payload of one chunk; at least one block.
    int64_t max_chunk_bytes = int64_t{4} << 20;
    // Chunks that are read before they are asked for.
    int ahead = 4;
  };
  DiskClient(const Options& options, engine::Loop& loop, kv::tier::DiskTier& tier);
  ~DiskClient() override;

  std::unique_ptr<rpc::EventCall> Call(const std::string& address, fleet::v1::FetchRequest request,
                                       absl::Duration patience, const telemetry::TraceContext& trace,
                                       Callbacks callbacks) override;

 private:
  struct Shared;
  struct Load;
  class Deadlines;
  static void ReadSome(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Load>& load);

  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<Deadlines> deadlines_;
};

}  // namespace baton::fetch
