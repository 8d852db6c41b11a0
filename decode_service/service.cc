#include "decode_service/service.h"

#include <utility>

#include "decode_service/request.h"

namespace baton::decode_service {
namespace {

// A client that lets this much pile up is paused until it has read on.
constexpr size_t kMaxOutboxBytes = 256 << 10;

}  // namespace

DecodeService::DecodeService(engine::Engine& engine, engine::Loop& loop, Scheduler& scheduler,
                             worker::WatchHub& hub, std::shared_ptr<const text::Tokenizer> tokenizer,
                             Probe& probe, const rpc::PeerCheck& peers)
    : engine_(engine),
      scheduler_(scheduler),
      hub_(hub),
      tokenizer_(std::move(tokenizer)),
      markers_(std::make_shared<output::MarkerTables>(*tokenizer_)),
      probe_(probe),
      calls_(peers, loop, kMaxOutboxBytes) {}

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Generate(grpc::CallbackServerContext* context,
                                                                   const v1::DecodeRequest* request) {
  using Parsed = std::unique_ptr<Sequence>;
  const SequenceId id(next_id_++);
  return calls_.Serve<Parsed>(
      *context,
      [&](rpc::EventSink<v1::DecodeEvent> sink) -> absl::StatusOr<Parsed> {
        if (!hub_.takes_work()) {
          return absl::UnavailableError(
              hub_.draining() ? "this decode worker is draining: use another"
                              : "this decode worker is not ready: its link has not passed its test");
        }
        auto parsed = ParseRequest(*request, engine_, tokenizer_, markers_);
        if (!parsed.ok()) {
          probe_.Refused();
          return parsed;
        }
        Sequence& sequence = **parsed;
        if (const auto deadline = context->deadline();
            deadline != std::chrono::system_clock::time_point::max()) {
          sequence.deadline = absl::FromChrono(deadline);
        }
        static_cast<rpc::EventSink<v1::DecodeEvent>&>(sequence) = std::move(sink);
        // The router's booking lives as long as the sequence does.
        sequence.send = [send = std::move(sequence.send),
                         booked = hub_.Book(request->router_id(), request->token_ids_size())](
                            v1::DecodeEvent event) { send(std::move(event)); };
        return parsed;
      },
      [this, id](Parsed sequence) {
        absl::Status admitted = scheduler_.Submit(id, std::move(sequence));
        if (!admitted.ok()) probe_.Refused();
        return admitted;
      },
      [this, id] { scheduler_.Cancel(id); },
      [this] {
        probe_.Refused();
        return absl::ResourceExhaustedError("this decode worker's mailbox is full: use another");
      });
}

}  // namespace baton::decode_service
