// LinkTests: what a prefill worker sends when decode workers measure their links: blocks of its pool as they
// are, with nothing computed, as fast as the link and the callers take them. Engine thread; driven by the
// loop, as the scheduler is.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/event_sink.h"
#include "engine/engine.h"
#include "protocol/fleet/ticket.h"
#include "transfer/link.h"
#include "transfer/shipment.h"

namespace baton::prefill_service {

// Payload of one test, but at least a block.
inline constexpr int64_t kMaxTestBytes = int64_t{64} << 20;

class LinkTests {
 public:
  using Sink = rpc::EventSink<fleet::v1::KvChunk>;
  static constexpr size_t kMost = 64;  // at once

  // All outlive it.
  LinkTests(engine::Engine& engine, transfer::LinkSender& link, int64_t max_chunk_bytes)
      : engine_(engine), link_(link), max_chunk_bytes_(max_chunk_bytes) {}
  ~LinkTests();

  // Begins to ship what the ticket covers. INVALID_ARGUMENT: the ticket covers nothing, or too much.
  // RESOURCE_EXHAUSTED: no block is free, or too many tests run.
  absl::Status Submit(uint64_t id, protocol::Ticket ticket, Sink sink);
  // Ends a test without a message. Unknown ids are ignored.
  void Cancel(uint64_t id);
  // Ships some. Returns whether there is more to do at once.
  bool Step();
  // Ends every test with `status`.
  void Abort(const absl::Status& status);

 private:
  struct Test {
    Sink sink;
    std::vector<BlockId> blocks;  // of the pool: a few will do, each shipped several times
    std::vector<BlockId> table;
    transfer::Shipment shipment;
    int64_t shipped = 0;  // of the table
  };
  using Tests = std::map<uint64_t, Test>;

  // Ships up to `most` blocks of one test; how many it were.
  absl::StatusOr<int64_t> Ship(Test& test, int64_t most);
  Tests::iterator End(Tests::iterator test);

  engine::Engine& engine_;
  transfer::LinkSender& link_;
  const int64_t max_chunk_bytes_;
  Tests tests_;
};

}  // namespace baton::prefill_service
