#include "prefill_service/service.h"

#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/trace_metadata.h"
#include "common/telemetry/semantic_conventions.h"
#include "prefill_service/request.h"

namespace baton::prefill_service {
namespace {

// KV on its way to one peer; beyond it that prompt pauses until the peer has taken some.
constexpr size_t kMaxOutboxBytes = 32 << 20;

}  // namespace

PrefillService::PrefillService(engine::Engine& engine, transfer::LinkSender& link, engine::Loop& loop,
                               Scheduler& scheduler, LinkTests& link_tests, worker::WatchHub& hub,
                               Probe& probe, const rpc::PeerCheck& peers, const Clock& clock,
                               const telemetry::Tracer& tracer)
    : engine_(engine),
      link_(link),
      scheduler_(scheduler),
      link_tests_(link_tests),
      hub_(hub),
      probe_(probe),
      clock_(clock),
      tracer_(tracer),
      calls_(peers, loop, kMaxOutboxBytes),
      tests_(peers, loop, kMaxOutboxBytes),
      meetings_(peers, loop, kMaxOutboxBytes) {}

void PrefillService::Trace(const grpc::CallbackServerContext& context,
                           const fleet::v1::PrefillRequest& request, Job& job) const {
  job.trace = rpc::TraceOf(context);
  job.spans = tracer_.Begin(job.trace, clock_, "prefill", telemetry::Span::Kind::kServer, clock_.Now());
  if (job.spans == nullptr) return;
  job.trace = job.spans->context();
  job.spans->whole().attributes = {{telemetry::names::kRequestId, request.request_id()},
                                   {telemetry::names::kWorker, hub_.info().worker_id()}};
}

grpc::ServerWriteReactor<fleet::v1::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context, const fleet::v1::PrefillRequest* request) {
  const JobId id = next_id_++;
  return calls_.Serve<Job>(
      *context,
      [&](rpc::EventSink<fleet::v1::PrefillEvent> sink) -> absl::StatusOr<Job> {
        if (hub_.draining()) {
          return absl::UnavailableError("this prefill worker is draining: use another");
        }
        auto job = ParseRequest(*request, engine_, link_.pairing());
        if (!job.ok()) {
          probe_.Refused();
        } else {
          static_cast<rpc::EventSink<fleet::v1::PrefillEvent>&>(*job) = std::move(sink);
          Trace(*context, *request, *job);
        }
        return job;
      },
      [this, id](Job job) {
        absl::Status queued = scheduler_.Submit(id, std::move(job));
        if (!queued.ok()) probe_.Refused();
        return queued;
      },
      [this, id, receiver = Incarnation(request->ticket().incarnation()),
       ticket = TicketId(request->ticket().id())] {
        scheduler_.Cancel(id);
        link_.Forget(receiver, ticket);
      },
      [this] {
        probe_.Refused();
        return absl::ResourceExhaustedError("this prefill worker's mailbox is full: use another");
      });
}

grpc::ServerWriteReactor<fleet::v1::KvChunk>* PrefillService::TestLink(
    grpc::CallbackServerContext* context, const fleet::v1::TestLinkRequest* request) {
  using Sink = LinkTests::Sink;
  const uint64_t id = next_id_++;
  return tests_.Serve<Sink>(
      *context,
      [&](Sink sink) -> absl::StatusOr<Sink> {
        BATON_RETURN_IF_ERROR(CheckPair(request->fingerprint(), engine_, link_.pairing()));
        return sink;
      },
      [this, id, ticket = protocol::Ticket::FromProto(request->ticket())](Sink sink) {
        return link_tests_.Submit(id, ticket, std::move(sink));
      },
      [this, id, receiver = Incarnation(request->ticket().incarnation()),
       ticket = TicketId(request->ticket().id())] {
        link_tests_.Cancel(id);
        link_.Forget(receiver, ticket);
      },
      [] { return absl::ResourceExhaustedError("this prefill worker's mailbox is full: try again"); });
}

grpc::ServerWriteReactor<fleet::v1::MeetResponse>* PrefillService::Meet(
    grpc::CallbackServerContext* context, const fleet::v1::MeetRequest* request) {
  using Sink = rpc::EventSink<fleet::v1::MeetResponse>;
  return meetings_.Serve<Sink>(
      *context, [](Sink sink) -> absl::StatusOr<Sink> { return sink; },
      [this, meeting = request->meeting()](const Sink& sink) {
        link_.Meet(meeting, [sink](absl::StatusOr<std::string> id) {
          if (id.ok()) {
            fleet::v1::MeetResponse response;
            response.set_id(*std::move(id));
            sink.send(std::move(response));
          }
          sink.finish(id.status());
        });
        return absl::OkStatus();
      },
      [] {}, [] { return absl::ResourceExhaustedError("this prefill worker's mailbox is full: try again"); });
}

}  // namespace baton::prefill_service
