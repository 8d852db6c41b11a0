#include "tests/fault/rig_fetch_client.h"

#include <utility>

#include "transfer/fetch/blocks_service.h"

namespace baton::fault {
namespace {

class FetchHandle final : public rpc::EventCall {
 public:
  explicit FetchHandle(std::shared_ptr<FetchWire> wire) : wire_(std::move(wire)) {}
  ~FetchHandle() override { wire_->LetGo(); }
  void Next() override { wire_->Next(); }

 private:
  std::shared_ptr<FetchWire> wire_;
};

}  // namespace

std::unique_ptr<rpc::EventCall> RigFetchClient::Call(const std::string& address,
                                                     fleet::v1::FetchRequest request, absl::Duration patience,
                                                     const telemetry::TraceContext&, Callbacks callbacks) {
  PrefillNode& node = rig_.prefill[address == rig_.prefill[0].name ? 0 : 1];
  auto take = [&rig = rig_, event = std::move(callbacks.event)](fleet::v1::FetchEvent message) {
    rig.fetch_events_ += 1;
    event(std::move(message));
  };
  auto wire = std::make_shared<FetchWire>(
      caller_, node, FetchWire::Reader{.event = std::move(take), .done = std::move(callbacks.done)});
  rig_.fetch_ = wire;
  rig_.wires_.push_back(wire);
  rig_.After(patience, [wire] {
    if (!wire->over()) wire->PassDeadline();
  });
  rig_.After(kArrives, [&rig = rig_, &node, wire, to = End(node), request = std::move(request)] {
    to.Post([&rig, &node, wire, request] {
      auto ask = fetch::ParseRequest(request, *node.engine);
      if (!ask.ok()) {
        wire->Finish(ask.status());
        return;
      }
      const fetch::FetchId id = rig.next_id_++;
      ask->send = [wire](fleet::v1::FetchEvent event) { wire->Send(std::move(event)); };
      ask->finish = [wire](absl::Status status) { wire->Finish(std::move(status)); };
      ask->congested = [wire] { return wire->waiting() > 3; };
      if (absl::Status served = node.server->Submit(id, *std::move(ask)); !served.ok()) {
        wire->Finish(served);
        return;
      }
      wire->SetCancelled([&node, id] { node.server->Cancel(id); });
    });
  });
  return std::make_unique<FetchHandle>(std::move(wire));
}

}  // namespace baton::fault
