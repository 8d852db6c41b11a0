// Worker: one incarnation of a worker as this router sees it: who it is, what it last reported, what this
// router has booked on it, and whether it is worth asking. A restart makes a new Worker, so bookings on the
// dead one can't weigh on the living. Identity is immutable and the rest is atomic: any thread, no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "baton/v1/handoff.pb.h"
#include "baton/v1/worker.pb.h"
#include "common/base/ids.h"

namespace baton::router::fleet {

enum class Role { kPrefill, kDecode };

class Worker {
 public:
  struct Identity {
    // Place in the router's list; names the channel.
    int seat = 0;
    std::string address;
    std::string id;
    Role role = Role::kDecode;
    Incarnation incarnation;
    v1::Fingerprint fingerprint;
  };

  explicit Worker(Identity identity) : identity_(std::move(identity)) {}

  const Identity& identity() const { return identity_; }

  // What the worker says about itself. Also relief for a worker that had refused.
  void Report(const v1::Load& load, std::string_view router_id);

  // Requests on the worker: what others put there by its last report, and what this router has booked.
  int64_t Requests() const;
  // Tokens waiting to be prefilled there. Prefill workers don't say whose they are, so it is the larger of
  // what the worker reported and what this router has booked.
  int64_t QueuedTokens() const;
  // 0 until reported.
  int64_t TotalBlocks() const { return total_blocks_.load(std::memory_order_relaxed); }
  int64_t BookedRequests() const { return booked_requests_.load(std::memory_order_relaxed); }

  // The gate: a worker that refused for want of blocks is asked again when it reports, when a request that it
  // runs for this router ends, or after `kGatePatience`; and then by one request, the trial, until that is
  // accepted.
  static constexpr absl::Duration kGatePatience = absl::Milliseconds(250);
  bool GateAllows(absl::Time now) const;
  // Goes through the gate. True if this request is the trial.
  bool PassGate(absl::Time now);
  void GateAccepted();
  void GateRefused(absl::Time now);
  void GateRelief();
  // The trial ended without an answer to the question.
  void GateTrialVoid();

  void Book(int64_t tokens);
  void Unbook(int64_t tokens);

 private:
  enum Gate : int { kOpen, kRefused, kTrial, kTrialOut };

  const Identity identity_;
  std::atomic<int64_t> reported_requests_{0};  // without this router's own
  std::atomic<int64_t> queued_tokens_{0};
  std::atomic<int64_t> total_blocks_{0};
  std::atomic<int64_t> booked_requests_{0};
  std::atomic<int64_t> booked_tokens_{0};
  std::atomic<int> gate_{kOpen};
  std::atomic<int64_t> refused_at_nanos_{0};
};

}  // namespace baton::router::fleet
