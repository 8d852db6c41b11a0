#include "transfer/fetch/blocks_service.h"

#include <fmt/format.h>

#include <utility>

#include "common/rpc/trace_metadata.h"
#include "protocol/fleet/fingerprint_wire.h"

namespace baton::fetch {
namespace {

// KV on its way to one peer; beyond it nothing more is sent until the peer has taken some.
constexpr size_t kMaxOutboxBytes = 8 << 20;

}  // namespace

absl::StatusOr<ServedFetch> ParseRequest(const fleet::v1::FetchRequest& request,
                                         const engine::Engine& engine) {
  if (const auto difference =
          protocol::FirstDifference(engine.fingerprint(), protocol::FromProto(request.fingerprint()));
      difference.has_value()) {
    return absl::FailedPreconditionError(
        fmt::format("fingerprints differ, holder against caller: {}", *difference));
  }
  const std::string_view hashes = request.hashes();
  const size_t count = hashes.size() / kv::BlockHash::kBytes;
  const size_t most = static_cast<size_t>(BlocksFor(engine.config().context));
  if (hashes.empty() || hashes.size() % kv::BlockHash::kBytes != 0 || count > most) {
    return absl::InvalidArgumentError(fmt::format("hashes: {} bytes are not 1 to {} hashes of {} bytes",
                                                  hashes.size(), most, kv::BlockHash::kBytes));
  }
  ServedFetch fetch;
  fetch.ticket = protocol::Ticket::FromProto(request.ticket());
  if (fetch.ticket.first_block != 0 || static_cast<size_t>(fetch.ticket.blocks()) != count) {
    return absl::InvalidArgumentError(fmt::format("ticket: covers blocks [{}, {}), the hashes name {}",
                                                  fetch.ticket.first_block,
                                                  fetch.ticket.first_block + fetch.ticket.blocks(), count));
  }
  fetch.request_id = request.request_id();
  fetch.hashes.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    fetch.hashes.push_back(
        kv::BlockHash::FromBytes(hashes.substr(i * kv::BlockHash::kBytes, kv::BlockHash::kBytes)));
  }
  return fetch;
}

BlocksService::BlocksService(engine::Engine& engine, engine::Loop& loop, PeerServer& server,
                             const rpc::PeerCheck& peers, const Clock& clock, const telemetry::Tracer& tracer)
    : engine_(engine),
      server_(server),
      clock_(clock),
      tracer_(tracer),
      calls_(peers, loop, kMaxOutboxBytes) {}

grpc::ServerWriteReactor<fleet::v1::FetchEvent>* BlocksService::Fetch(
    grpc::CallbackServerContext* context, const fleet::v1::FetchRequest* request) {
  const FetchId id = next_id_++;
  return calls_.Serve<ServedFetch>(
      *context,
      [&](rpc::EventSink<fleet::v1::FetchEvent> sink) {
        auto fetch = ParseRequest(*request, engine_);
        if (!fetch.ok()) return fetch;
        static_cast<rpc::EventSink<fleet::v1::FetchEvent>&>(*fetch) = std::move(sink);
        // It ends with the fetch, whatever the end.
        fetch->spans = tracer_.Begin(rpc::TraceOf(*context), clock_, "fetch.serve",
                                     telemetry::Span::Kind::kServer, clock_.Now());
        return fetch;
      },
      [this, id](ServedFetch fetch) { return server_.Submit(id, std::move(fetch)); },
      [this, id] { server_.Cancel(id); },
      [] { return absl::ResourceExhaustedError("this worker's mailbox is full: compute the blocks"); });
}

}  // namespace baton::fetch
