// Fetch: one attempt to have blocks filled by a peer that has them. It is the owner of a stream of KV
// (transfer/kv_receiver.h) whose first event says how many blocks the peer found. What is committed stays
// good whatever the end; a fetch that fails costs its caller a computation and no more. Release, at any time,
// cancels the call and all callbacks; a write that has begun may still end after it, and until writing() is
// false the object and the blocks stay. Engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/kv/index/lease_table.h"
#include "transfer/fetch/fetch_client.h"
#include "transfer/kv_receiver.h"

namespace baton::fetch {

class Fetch {
 public:
  struct Callbacks {
    // The leases of what the peer has found, at most once and before anything is in place. Empty: nobody
    // asks.
    std::function<void(std::span<const kv::HeldLease>)> leased = nullptr;
    // Blocks [0, blocks) of those asked for are in place.
    std::function<void(int64_t blocks)> committed;
    // Once, last, unless released before, and with no write in progress. OK: all that the peer had is here,
    // which may be nothing.
    std::function<void(absl::Status)> ended;
  };

  // The ticket's first_block is 0; it covers all of `blocks`. decided(fetch, status) is called once, when the
  // outcome is known: CANCELLED if the fetch was released.
  Fetch(std::string worker, protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
        transfer::LinkReceiver& link, absl::Time started, Callbacks callbacks,
        std::function<void(const Fetch&, const absl::Status&)> decided);

  // `request` lacks only the ticket.
  void Start(FetchClient& client, const std::string& address, fleet::v1::FetchRequest request,
             absl::Duration patience, const telemetry::TraceContext& trace);

  // Begins no further write, ends the call and all callbacks. May be called from a callback.
  void Release() { receiver_.Release(); }
  bool writing() const { return receiver_.writing(); }
  // Neither ended nor released.
  bool running() const { return receiver_.running(); }

  const std::string& worker() const { return worker_; }
  absl::Time started() const { return started_; }
  // Blocks: asked for; those that the peer said it had; in place.
  int64_t asked() const { return receiver_.intake().ticket().blocks(); }
  std::optional<int64_t> found() const { return found_; }
  int64_t committed() const { return receiver_.intake().received_blocks(); }
  int64_t received_bytes() const { return receiver_.intake().received_bytes(); }

 private:
  absl::Status OnEvent(const std::shared_ptr<const fleet::v1::FetchEvent>& event);
  absl::Status OnFound(const fleet::v1::FetchFound& found);
  void OnWritten();
  absl::Status Complete() const;

  const std::string worker_;
  const absl::Time started_;
  const Callbacks callbacks_;
  std::optional<int64_t> found_;
  int64_t told_ = 0;  // committed blocks that the owner knows of
  transfer::KvReceiver receiver_;
};

}  // namespace baton::fetch
