#include "tests/fault/rig_prefill_client.h"

#include <utility>

#include "prefill_service/request.h"

namespace baton::fault {
namespace {

class PrefillHandle final : public decode_service::PrefillCall {
 public:
  explicit PrefillHandle(std::shared_ptr<PrefillWire> wire) : wire_(std::move(wire)) {}
  ~PrefillHandle() override { wire_->LetGo(); }
  void Next() override { wire_->Next(); }

 private:
  std::shared_ptr<PrefillWire> wire_;
};

}  // namespace

std::unique_ptr<decode_service::PrefillCall> RigPrefillClient::Call(const std::string& address,
                                                                    fleet::v1::PrefillRequest request,
                                                                    absl::Time deadline,
                                                                    const telemetry::TraceContext&,
                                                                    Callbacks callbacks) {
  PrefillNode& node = rig_.prefill[address == rig_.prefill[0].name ? 0 : 1];
  const fleet::v1::Ticket open = request.ticket();
  const bool restamp = rig_.without_.fence;
  auto take = [&rig = rig_, open, restamp,
               event = std::move(callbacks.event)](fleet::v1::PrefillEvent message) {
    if (message.has_chunk()) {
      rig.chunks_.push_back(message.chunk());
      if (restamp) {
        fleet::v1::KvChunk& chunk = *message.mutable_chunk();
        chunk.set_incarnation(open.incarnation());
        chunk.set_ticket_id(open.id());
        for (int i = 0; i < chunk.generations_size(); ++i) {
          const int64_t at = int64_t{chunk.first_block()} - open.first_block() + i;
          if (at >= 0 && at < open.generations_size()) {
            chunk.set_generations(i, open.generations(static_cast<int>(at)));
          }
        }
      }
    }
    event(std::move(message));
  };
  auto wire = std::make_shared<PrefillWire>(
      decode_, node, PrefillWire::Reader{.event = std::move(take), .done = std::move(callbacks.done)});
  rig_.handoff_ = wire;
  rig_.wires_.push_back(wire);
  for (fleet::v1::KvChunk& chunk : std::exchange(rig_.late_, {})) {
    fleet::v1::PrefillEvent event;
    *event.mutable_chunk() = std::move(chunk);
    wire->Send(std::move(event));
  }
  const bool forget = rig_.without_.release;
  rig_.After(kArrives, [&rig = rig_, &node, forget, wire, to = End(node), request = std::move(request)] {
    to.Post([&rig, &node, forget, wire, request] {
      rig.reached_prefill_ = true;
      auto job = prefill_service::ParseRequest(request, *node.engine);
      if (!job.ok()) {
        wire->Finish(job.status());
        return;
      }
      const prefill_service::JobId id = rig.next_id_++;
      job->send = [wire](fleet::v1::PrefillEvent event) { wire->Send(std::move(event)); };
      job->finish = [wire](absl::Status status) { wire->Finish(std::move(status)); };
      // A call whose end was not heard of looks like one that is read slowly.
      job->congested = [wire, forget] { return wire->waiting() > 64 || (forget && wire->server_over()); };
      if (absl::Status queued = node.scheduler->Submit(id, *std::move(job)); !queued.ok()) {
        wire->Finish(queued);
        return;
      }
      if (forget) return;
      wire->SetCancelled([&node, id] { node.scheduler->Cancel(id); });
    });
  });
  return std::make_unique<PrefillHandle>(std::move(wire));
}

}  // namespace baton::fault
