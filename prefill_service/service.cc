#include "prefill_service/service.h"

#include <utility>

#include "common/rpc/server_stream.h"
#include "common/transfer/fingerprint_wire.h"
#include "fmt/format.h"

namespace baton::prefill_service {
namespace {

using Stream = rpc::ServerStream<v1::PrefillEvent>;

// KV on its way to one peer; beyond it that prompt pauses until the peer has taken some.
constexpr size_t kMaxOutboxBytes = 32 << 20;

}  // namespace

absl::StatusOr<Job> PrefillService::Parse(const v1::PrefillRequest& request) const {
  const model::ModelConfig& config = engine_.config();
  if (const auto difference =
          model::FirstDifference(engine_.fingerprint(), transfer::FromProto(request.fingerprint()));
      difference.has_value()) {
    return absl::FailedPreconditionError(
        fmt::format("fingerprints differ, prefill worker against decode worker: {}", *difference));
  }
  const int64_t size = request.token_ids_size();
  if (size == 0) return absl::InvalidArgumentError("token_ids: the prompt is empty");
  if (size > config.context) {
    return absl::InvalidArgumentError(
        fmt::format("token_ids: {} tokens exceed the context of {}", size, config.context));
  }
  Job job;
  job.tokens.reserve(size);
  for (int64_t i = 0; i < size; ++i) {
    const int32_t id = request.token_ids(static_cast<int>(i));
    if (id < 0 || id >= config.vocabulary) {
      return absl::InvalidArgumentError(
          fmt::format("token_ids[{}] is {}, the vocabulary has {} tokens", i, id, config.vocabulary));
    }
    job.tokens.emplace_back(id);
  }
  job.ticket = transfer::Ticket::FromProto(request.ticket());
  if (job.ticket.blocks() == 0 || job.ticket.first_block + job.ticket.blocks() > BlocksFor(size)) {
    return absl::InvalidArgumentError(
        fmt::format("ticket: covers blocks [{}, {}) of a prompt that has {}", job.ticket.first_block,
                    job.ticket.first_block + job.ticket.blocks(), BlocksFor(size)));
  }
  job.request_id = request.request_id();
  job.root = engine_.RootFor(kv::TenantSalt(request.salt()));
  job.priority = request.priority();
  return job;
}

grpc::ServerWriteReactor<v1::PrefillEvent>* PrefillService::Prefill(grpc::CallbackServerContext* context,
                                                                    const v1::PrefillRequest* request) {
  auto stream = Stream::Create();
  auto* reactor = stream->reactor();
  if (hub_.draining()) {
    stream->Finish(absl::UnavailableError("this prefill worker is draining: use another"));
    return reactor;
  }
  auto job = Parse(*request);
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
