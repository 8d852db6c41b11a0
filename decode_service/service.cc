#include "decode_service/service.h"

#include <utility>

#include "common/rpc/server_stream.h"
#include "decode_service/request.h"

namespace baton::decode_service {
namespace {

using Stream = rpc::ServerStream<v1::DecodeEvent>;

// A client that lets this much pile up is paused until it has read on.
constexpr size_t kMaxOutboxBytes = 256 << 10;

}  // namespace

DecodeService::DecodeService(engine::Engine& engine, engine::Loop& loop, Scheduler& scheduler,
                             worker::WatchHub& hub, std::shared_ptr<const text::Tokenizer> tokenizer,
                             Probe& probe, const rpc::PeerCheck& peers)
    : engine_(engine),
      loop_(loop),
      scheduler_(scheduler),
      hub_(hub),
      tokenizer_(std::move(tokenizer)),
      probe_(probe),
      peers_(peers) {}

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Generate(grpc::CallbackServerContext* context,
                                                                   const v1::DecodeRequest* request) {
  auto stream = Stream::Create();
  auto* reactor = stream->reactor();
  if (absl::Status stranger = peers_(*context); !stranger.ok()) {
    stream->Finish(std::move(stranger));
    return reactor;
  }
  if (!hub_.takes_work()) {
    stream->Finish(absl::UnavailableError(
        hub_.draining() ? "this decode worker is draining: use another"
                        : "this decode worker is not ready: its link has not passed its test"));
    return reactor;
  }
  auto parsed = ParseRequest(*request, engine_, tokenizer_);
  if (!parsed.ok()) {
    probe_.Refused();
    stream->Finish(parsed.status());
    return reactor;
  }
  std::unique_ptr<Sequence> sequence = *std::move(parsed);
  if (const auto deadline = context->deadline(); deadline != std::chrono::system_clock::time_point::max()) {
    sequence->deadline = absl::FromChrono(deadline);
  }
  // The router's booking lives as long as the sequence does.
  sequence->send = [stream, booked = hub_.Book(request->router_id(), request->token_ids_size())](
                       v1::DecodeEvent event) { stream->Send(std::move(event)); };
  sequence->finish = [stream](const absl::Status& status) { stream->Finish(status); };
  sequence->congested = [stream] { return stream->outbox_bytes() > kMaxOutboxBytes; };
  const SequenceId id(next_id_++);
  const bool posted = loop_.TryPost([this, id, stream, sequence = std::move(sequence)]() mutable {
    if (stream->cancelled()) return;
    if (absl::Status admitted = scheduler_.Submit(id, std::move(sequence)); !admitted.ok()) {
      probe_.Refused();
      stream->Finish(admitted);
      return;
    }
    stream->Listen({.cancelled = [this, id] { loop_.PostAlways([this, id] { scheduler_.Cancel(id); }); },
                    .drained = [this] { loop_.PostAlways([] {}); }});
  });
  if (!posted) {
    probe_.Refused();
    stream->Finish(absl::ResourceExhaustedError("this decode worker's mailbox is full: use another"));
  }
  return reactor;
}

}  // namespace baton::decode_service
