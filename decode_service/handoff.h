// Handoff: one attempt to have a prompt's KV filled in by one prefill worker: the call, the intake that
// checks and commits what arrives, and the logits of the last position. Release, at any time, cancels the
// call and all callbacks; a write that has begun may still end after it, and until writing() is false the
// object and the blocks stay. Engine thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/transfer/intake.h"
#include "decode_service/prefill_client.h"

namespace baton::decode_service {

class Handoff {
 public:
  struct Callbacks {
    // The logits came, checked, perhaps before the last blocks: the first token may be drawn.
    std::function<void(std::span<const float> logits, const v1::PrefillDone& done)> logits;
    // Once, last, unless released before, and with no write under way. OK: logits and all blocks are here.
    // Otherwise committed_blocks() tells how far a next attempt need not go back.
    std::function<void(absl::Status)> ended;
  };

  Handoff(std::string worker, transfer::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
          transfer::LinkReceiver& link, int64_t vocabulary, Callbacks callbacks);
  ~Handoff();

  // `request` lacks only the ticket.
  void Start(PrefillClient& client, const std::string& address, v1::PrefillRequest request,
             absl::Time deadline);

  // Begins no further write, ends the call and all callbacks. May be called from a callback.
  void Release();
  bool writing() const { return intake_.writing(); }

  const std::string& worker() const { return worker_; }
  // A chunk came that the ticket does not cover.
  bool refused_write() const { return refused_write_; }
  const transfer::Intake& intake() const { return intake_; }

 private:
  void OnEvent(std::shared_ptr<const v1::PrefillEvent> event);
  void OnWritten(const absl::Status& status);
  absl::Status TakeLogits(const v1::PrefillDone& done);
  void OnDone(const absl::Status& status);
  void End(absl::Status status);
  void TellEnd();

  const std::string worker_;
  transfer::Intake intake_;
  const int64_t vocabulary_;
  Callbacks callbacks_;
  std::unique_ptr<PrefillCall> call_;
  bool logits_taken_ = false;
  bool stream_done_ = false;
  bool refused_write_ = false;
  bool ended_ = false;                  // what comes now is not heeded
  std::optional<absl::Status> untold_;  // the end, as long as a write is under way
};

}  // namespace baton::decode_service
