#include "common/fetch/blocks_service.h"

#include <utility>

#include "common/rpc/server_stream.h"
#include "common/transfer/fingerprint_wire.h"
#include "fmt/format.h"

namespace baton::fetch {
namespace {

using Stream = rpc::ServerStream<v1::FetchEvent>;

// KV on its way to one peer; beyond it nothing more is sent until the peer has taken some.
constexpr size_t kMaxOutboxBytes = 8 << 20;

}  // namespace

absl::StatusOr<Ask> ParseRequest(const v1::FetchRequest& request, const engine::Engine& engine) {
  if (const auto difference =
          model::FirstDifference(engine.fingerprint(), transfer::FromProto(request.fingerprint()));
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
  Ask ask;
  ask.ticket = transfer::Ticket::FromProto(request.ticket());
  if (ask.ticket.first_block != 0 || static_cast<size_t>(ask.ticket.blocks()) != count) {
    return absl::InvalidArgumentError(fmt::format("ticket: covers blocks [{}, {}), the hashes name {}",
                                                  ask.ticket.first_block,
                                                  ask.ticket.first_block + ask.ticket.blocks(), count));
  }
  ask.request_id = request.request_id();
  ask.hashes.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ask.hashes.push_back(
        kv::BlockHash::FromBytes(hashes.substr(i * kv::BlockHash::kBytes, kv::BlockHash::kBytes)));
  }
  return ask;
}

grpc::ServerWriteReactor<v1::FetchEvent>* BlocksService::Fetch(grpc::CallbackServerContext* context,
                                                               const v1::FetchRequest* request) {
  auto stream = Stream::Create();
  auto* reactor = stream->reactor();
  if (absl::Status stranger = peers_(*context); !stranger.ok()) {
    stream->Finish(std::move(stranger));
    return reactor;
  }
  auto ask = ParseRequest(*request, engine_);
  if (!ask.ok()) {
    stream->Finish(ask.status());
    return reactor;
  }
  ask->send = [stream](v1::FetchEvent event) { stream->Send(std::move(event)); };
  ask->finish = [stream](const absl::Status& status) { stream->Finish(status); };
  ask->congested = [stream] { return stream->outbox_bytes() > kMaxOutboxBytes; };
  const FetchId id = next_id_++;
  const bool posted = loop_.TryPost([this, id, stream, ask = *std::move(ask)]() mutable {
    if (stream->cancelled()) return;
    if (absl::Status served = holder_.Submit(id, std::move(ask)); !served.ok()) {
      stream->Finish(served);
      return;
    }
    stream->Listen({.cancelled = [this, id] { loop_.PostAlways([this, id] { holder_.Cancel(id); }); },
                    .drained = [this] { loop_.PostAlways([] {}); }});
  });
  if (!posted) {
    stream->Finish(absl::ResourceExhaustedError("this worker's mailbox is full: compute the blocks"));
  }
  return reactor;
}

}  // namespace baton::fetch
