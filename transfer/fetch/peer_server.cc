#include "transfer/fetch/peer_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/fleet/lease_wire.h"

namespace baton::fetch {

PeerServer::PeerServer(const PeerServerOptions& options, engine::Engine& engine, transfer::LinkSender& link,
                       Probe& probe)
    : options_(options), engine_(engine), link_(link), probe_(probe) {}

PeerServer::~PeerServer() {
  while (!serving_.empty()) End(serving_.begin(), Probe::Served::kFailed);
}

absl::Status PeerServer::Submit(FetchId id, ServedFetch fetch) {
  if (serving_.size() >= options_.max_fetches) {
    probe_.Serve(Probe::Served::kRefused, 0, 0);
    return absl::ResourceExhaustedError(
        fmt::format("{} fetches are served already: compute the blocks, or ask another", serving_.size()));
  }
  Serving serving;
  serving.blocks = engine_.pool().AcquirePrefix(fetch.hashes);
  serving.shipment =
      std::make_unique<transfer::Shipment>(fetch.ticket, link_, engine_.store(), options_.max_chunk_bytes);
  serving.fetch = std::move(fetch);
  fleet::v1::FetchEvent event;
  fleet::v1::FetchFound& found = *event.mutable_found();
  found.set_blocks(static_cast<uint32_t>(serving.blocks.size()));
  protocol::ToProto(engine_.pool().LeasesOf(serving.blocks), found.mutable_leases());
  serving.fetch.send(std::move(event));
  serving_.emplace(id, std::move(serving));
  probe_.Serving(serving_.size());
  return absl::OkStatus();
}

void PeerServer::Cancel(FetchId id) {
  const auto found = serving_.find(id);
  if (found != serving_.end()) End(found, Probe::Served::kCancelled);
}

bool PeerServer::Step() {
  const int64_t block_bytes = engine_.store().layout().block_bytes();
  int64_t budget = std::max<int64_t>(1, options_.step_bytes / block_bytes);  // blocks
  bool more = false;
  for (auto at = serving_.begin(); at != serving_.end();) {
    Serving& serving = at->second;
    const auto held = std::ssize(serving.blocks);
    if (serving.shipped < held && serving.fetch.congested()) {
      ++at;
      continue;
    }
    const int64_t count = std::min(budget, held - serving.shipped);
    const absl::Status sent =
        serving.shipment->Ship(serving.blocks, serving.shipped, count, 0, engine_.store().layout().layers,
                               [send = serving.fetch.send](fleet::v1::KvChunk chunk) {
                                 fleet::v1::FetchEvent event;
                                 *event.mutable_chunk() = std::move(chunk);
                                 send(std::move(event));
                               });
    serving.shipped += count;
    budget -= count;
    if (!sent.ok() || serving.shipped == held) {
      link_.WhenReady([finish = serving.fetch.finish, sent] { finish(sent); });
      at = End(at, !sent.ok()  ? Probe::Served::kFailed
                   : held == 0 ? Probe::Served::kMissed
                               : Probe::Served::kOk);
    } else {
      more = true;
      ++at;
    }
  }
  return more;
}

bool PeerServer::MakeRoom() {
  if (serving_.empty()) return false;
  Abort(absl::ResourceExhaustedError("this worker needs its blocks for its own requests"));
  return true;
}

void PeerServer::Abort(const absl::Status& status) {
  while (!serving_.empty()) {
    serving_.begin()->second.fetch.finish(status);
    End(serving_.begin(), Probe::Served::kFailed);
  }
}

PeerServer::Servings::iterator PeerServer::End(Servings::iterator serving, Probe::Served outcome) {
  engine_.pool().Release(serving->second.blocks);
  probe_.Serve(outcome, serving->second.shipped, serving->second.shipment->shipped_bytes());
  const auto next = serving_.erase(serving);
  probe_.Serving(serving_.size());
  return next;
}

}  // namespace baton::fetch
