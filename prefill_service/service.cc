#include "prefill_service/service.h"

#include <utility>

#include "common/rpc/server_stream.h"
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
  auto job = ParseRequest(*request, engine_);
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

}  // namespace baton::prefill_service
