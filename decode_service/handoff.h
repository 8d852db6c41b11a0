// Handoff: one attempt to have a prompt's KV computed and sent by one prefill worker. It is the owner of a
// stream of KV (transfer/kv_receiver.h) that carries, beside the blocks, the logits of the prompt's last
// position. Release, at any time, cancels the call and all callbacks; a write that has begun may still end
// after it, and until writing() is false the object and the blocks stay. Engine thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "decode_service/prefill_client.h"
#include "transfer/kv_receiver.h"

namespace baton::decode_service {

class Handoff {
 public:
  struct Callbacks {
    // How far the prompt is there. May be null.
    std::function<void(const fleet::v1::PrefillProgress& progress)> progress;
    // The logits came, checked, perhaps before the last blocks: the first token may be drawn.
    std::function<void(std::span<const float> logits, const fleet::v1::PrefillDone& done)> logits;
    // Once, last, unless released before, and with no write in progress. OK: logits and all blocks are here.
    // After an error, the blocks up to intake().committed_blocks() are good: the next attempt begins there.
    std::function<void(absl::Status)> ended;
  };

  Handoff(std::string worker, protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
          transfer::LinkReceiver& link, int64_t vocabulary, Callbacks callbacks);

  // `request` lacks only the ticket.
  void Start(PrefillClient& client, const std::string& address, fleet::v1::PrefillRequest request,
             absl::Time deadline, const telemetry::TraceContext& trace = {});

  // Begins no further write, ends the call and all callbacks. May be called from a callback.
  void Release() { receiver_.Release(); }
  bool writing() const { return receiver_.writing(); }

  const std::string& worker() const { return worker_; }
  // A chunk came that the ticket does not cover.
  bool refused_write() const { return receiver_.refused_write(); }
  const transfer::Intake& intake() const { return receiver_.intake(); }

 private:
  absl::Status OnEvent(const std::shared_ptr<const fleet::v1::PrefillEvent>& event);
  absl::Status TakeLogits(const fleet::v1::PrefillDone& done);
  absl::Status Complete() const;

  const std::string worker_;
  const int64_t vocabulary_;
  const Callbacks callbacks_;
  bool logits_taken_ = false;
  transfer::KvReceiver receiver_;
};

}  // namespace baton::decode_service
