#include "prefill_service/service.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/server_stream.h"
#include "prefill_service/link_test.h"
#include "prefill_service/request.h"

namespace baton::prefill_service {
namespace {

using Stream = rpc::ServerStream<v1::PrefillEvent>;

// KV on its way to one peer; beyond it that prompt pauses until the peer has taken some.
constexpr size_t kMaxOutboxBytes = 32 << 20;

}  // namespace

grpc::ServerWriteReactor<v1::PrefillEvent>* PrefillService::Prefill(grpc::CallbackServerContext* context,
                                                                    const v1::PrefillRequest* request) {
  auto stream = Stream::Create();
  auto* reactor = stream->reactor();
  if (absl::Status stranger = peers_(*context); !stranger.ok()) {
    stream->Finish(std::move(stranger));
    return reactor;
  }
  if (hub_.draining()) {
    stream->Finish(absl::UnavailableError("this prefill worker is draining: use another"));
    return reactor;
  }
  auto job = ParseRequest(*request, engine_, link_.name());
  if (!job.ok()) {
    probe_.Refused();
    stream->Finish(job.status());
    return reactor;
  }
  job->send = [stream](v1::PrefillEvent event) { stream->Send(std::move(event)); };
  job->finish = [stream](const absl::Status& status) { stream->Finish(status); };
  job->congested = [stream] { return stream->outbox_bytes() > kMaxOutboxBytes; };
  const JobId id = next_id_++;
  const bool posted = loop_.TryPost([this, id, stream, job = *std::move(job)]() mutable {
    if (stream->cancelled()) return;
    if (absl::Status queued = scheduler_.Submit(id, std::move(job)); !queued.ok()) {
      probe_.Refused();
      stream->Finish(queued);
      return;
    }
    stream->Listen({.cancelled = [this, id] { loop_.PostAlways([this, id] { scheduler_.Cancel(id); }); },
                    .drained = [this] { loop_.PostAlways([] {}); }});
  });
  if (!posted) {
    probe_.Refused();
    stream->Finish(absl::ResourceExhaustedError("this prefill worker's mailbox is full: use another"));
  }
  return reactor;
}

grpc::ServerWriteReactor<v1::KvChunk>* PrefillService::TestLink(grpc::CallbackServerContext* context,
                                                                const v1::TestLinkRequest* request) {
  auto stream = rpc::ServerStream<v1::KvChunk>::Create();
  auto* reactor = stream->reactor();
  absl::Status refused = peers_(*context);
  if (refused.ok()) refused = CheckPair(request->fingerprint(), engine_, link_.name());
  if (!refused.ok()) {
    stream->Finish(std::move(refused));
    return reactor;
  }
  const bool posted = loop_.TryPost([this, stream, ticket = transfer::Ticket::FromProto(request->ticket())] {
    if (stream->cancelled()) return;
    stream->Finish(ShipTest(ticket, engine_, link_, rpc::kMaxChunkBytes,
                            [&](v1::KvChunk chunk) { stream->Send(std::move(chunk)); }));
  });
  if (!posted)
    stream->Finish(absl::ResourceExhaustedError("this prefill worker's mailbox is full: try again"));
  return reactor;
}

}  // namespace baton::prefill_service
