// Handoff: one attempt to have a prompt's KV filled in by one prefill worker: the call, the intake that
// checks and commits what arrives, and the logits of the last position. Destroying it, at any time, cancels
// the call and ends all writes. Engine thread.
#pragma once

#include <functional>
#include <memory>
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
    // Once, last, unless destroyed before. OK: logits and all blocks are here. Otherwise committed_blocks()
    // tells how far a next attempt need not go back.
    std::function<void(absl::Status)> ended;
  };

  Handoff(std::string worker, transfer::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
          transfer::LinkReceiver& link, int64_t vocabulary, Callbacks callbacks);
  ~Handoff();

  // `request` lacks only the ticket.
  void Start(PrefillClient& client, const std::string& address, v1::PrefillRequest request,
             absl::Time deadline);

  // Ends all writes now, and all callbacks; the call itself ends with the object. May be called from a
  // callback.
  void Release();

  const std::string& worker() const { return worker_; }
  // A chunk came that the ticket does not cover.
  bool refused_write() const { return refused_write_; }
  const transfer::Intake& intake() const { return intake_; }

 private:
  void OnEvent(v1::PrefillEvent event);
  absl::Status TakeLogits(const v1::PrefillDone& done);
  void OnDone(const absl::Status& status);
  void End(const absl::Status& status);

  const std::string worker_;
  transfer::Intake intake_;
  const int64_t vocabulary_;
  Callbacks callbacks_;
  std::unique_ptr<PrefillCall> call_;
  bool logits_taken_ = false;
  bool refused_write_ = false;
  bool ended_ = false;
};

}  // namespace baton::decode_service
