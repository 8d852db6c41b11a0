// Worker: one incarnation of a worker as this router sees it: who it is, what it last reported, what this
// router has booked on it, and whether it is asked at all (circuit_breaker.h). A restart makes a new Worker,
// so bookings on the dead one can't weigh on the living. Identity is immutable, the numbers are atomic, the
// prompts booked have a lock of their own that is a leaf: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/handoff.pb.h"
#include "baton/fleet/v1/worker.pb.h"
#include "common/base/ids.h"
#include "router/fleet/circuit_breaker.h"
#include "router/index/worker_slot.h"
#include "router/placement/policy.h"

namespace grpc {
class Channel;
}

namespace baton::router::fleet {

enum class Role { kPrefill, kDecode };

// Stands for the name of a worker or of a link's domain in tables and comparisons. 0: no name.
uint64_t KeyOf(std::string_view name);

// A prompt that this router has booked on the worker that will compute it, until its first token.
struct BookedPrompt {
  uint64_t id = 0;
  absl::Time due = absl::InfiniteFuture();
  int64_t tokens = 0;  // uncached
  int64_t cached = 0;
  absl::Time since;  // when it was booked
};

class Worker {
 public:
  struct Identity {
    // The number of the endpoint that it answers at; no other address ever has the same.
    int endpoint = 0;
    std::string address;
    std::string id;
    Role role = Role::kDecode;
    Incarnation incarnation;
    baton::fleet::v1::Fingerprint fingerprint;
    // The channel for requests to it. Calls keep it too, so they go on after the endpoint was removed.
    std::shared_ptr<grpc::Channel> channel = nullptr;
    // It fetches blocks from peers, and serves them.
    bool peer_fetch = false;
    // It takes requests with reusable spans.
    bool chunk_reuse = false;
    // Rows of the longest chunk of one prompt in a step; 0: it does not say.
    int64_t chunk_tokens = 0;
    // The longest uncached rest of a prompt that it computes itself while a prefill worker is up; absent: it
    // has no rule.
    std::optional<int64_t> local_prefill_tokens = std::nullopt;
    // Names the workers among which its link is fast; empty: it does not say.
    std::string link_domain = {};
    // AnswerDigest of the fingerprint.
    std::string answer_digest = {};
  };

  explicit Worker(Identity identity, WorkerSlot slot = WorkerSlot(0));

  const Identity& identity() const { return identity_; }
  // KeyOf its id and of its domain.
  uint64_t key() const { return key_; }
  uint64_t domain_key() const { return domain_key_; }
  // Its place in the prefix index and in placement's tables. Another one after a new snapshot.
  WorkerSlot slot() const { return WorkerSlot(slot_.load(std::memory_order_relaxed)); }
  // The slot is void: the worker has left, or starts again.
  bool departed() const { return departed_.load(std::memory_order_relaxed); }
  void Depart() { departed_.store(true, std::memory_order_relaxed); }
  void SetSlot(WorkerSlot slot) {
    slot_.store(slot.value(), std::memory_order_relaxed);
    departed_.store(false, std::memory_order_relaxed);
  }

  // Its place in the prefix index for the blocks on its disk, and what reading them takes. Absent: it has no
  // disk, or no place. What no disk takes is left out.
  std::optional<WorkerSlot> disk_slot() const {
    const uint32_t slot = disk_slot_.load(std::memory_order_relaxed);
    return slot == kNoSlot ? std::nullopt : std::optional(WorkerSlot(slot));
  }
  void SetDiskSlot(std::optional<WorkerSlot> slot) {
    disk_slot_.store(slot.has_value() ? slot->value() : kNoSlot, std::memory_order_relaxed);
  }
  void ReportDisk(const baton::fleet::v1::DiskRate& rate);
  placement::DiskCost disk_cost() const {
    return {.base = disk_base_.load(std::memory_order_relaxed),
            .token = disk_token_.load(std::memory_order_relaxed)};
  }

  // The connection to it lives, as far as is known. One that broke may be the router's own stall: until the
  // worker is heard again or is down, requests go elsewhere or wait.
  bool heard() const { return heard_.load(std::memory_order_relaxed); }
  void SetHeard(bool heard) { heard_.store(heard, std::memory_order_relaxed); }

  // Takes the worker's report on itself. Also half-opens its circuit breaker, if that is open.
  void Report(const baton::fleet::v1::Load& load, std::string_view router_id);

  // Takes its report on the cost of hand-offs to it, which replaces the one before. Numbers that no link has
  // are left out.
  void ReportPeers(const google::protobuf::RepeatedPtrField<baton::fleet::v1::PeerRate>& rates);
  // By peer, in ascending order. Never null.
  std::shared_ptr<const std::vector<placement::PeerCost>> peer_costs() const;

  // Requests on the worker: what others put there by its last report, and what this router has booked.
  int64_t Requests() const;
  // Tokens waiting to be prefilled there. Workers don't say whose they are, so it is the larger of what the
  // worker reported and what this router has booked.
  int64_t QueuedTokens() const;
  // Prompt tokens of what runs or is queued on a decode worker: others' by its last report, and this
  // router's.
  int64_t ContextTokens() const;
  // All routers' requests by its last report: those that run, and those that were accepted and do not run
  // yet.
  int64_t ReportedRunning() const { return reported_running_.load(std::memory_order_relaxed); }
  int64_t ReportedQueued() const { return reported_queued_.load(std::memory_order_relaxed); }
  // Answers with which its steps meet the target of TPOT; none: it does not say.
  std::optional<int64_t> AnswersInTime() const {
    const int64_t answers = answers_in_time_.load(std::memory_order_relaxed);
    return answers > 0 ? std::optional(answers) : std::nullopt;
  }
  // 0 until reported.
  int64_t TotalBlocks() const { return total_blocks_.load(std::memory_order_relaxed); }
  int64_t FreeBlocks() const { return free_blocks_.load(std::memory_order_relaxed); }
  int64_t CachedBlocks() const { return cached_blocks_.load(std::memory_order_relaxed); }
  // Cached blocks with a lease.
  int64_t LeasedBlocks() const { return leased_blocks_.load(std::memory_order_relaxed); }
  // Prompts of this router's that it has given no first token for.
  int64_t PromptsBooked() const { return prompt_count_.load(std::memory_order_relaxed); }
  int64_t BookedRequests() const { return booked_requests_.load(std::memory_order_relaxed); }

  // Decode workers: whether it is asked at all.
  CircuitBreaker& breaker() { return breaker_; }
  const CircuitBreaker& breaker() const { return breaker_; }

  // A request with a context of so many tokens, on a decode worker, for its whole life.
  void Book(int64_t tokens);
  void Unbook(int64_t tokens);
  // A prompt, on the worker that computes it, until its first token. The id is for Unbook.
  uint64_t BookPrompt(BookedPrompt prompt, absl::Time now);
  // `now` is unknown if it ended without a first token.
  void UnbookPrompt(uint64_t id, absl::Time now);
  struct Prompts {
    std::vector<BookedPrompt> booked;
    // Since when it has been busy with one of them; InfiniteFuture: idle.
    absl::Time busy_since = absl::InfiniteFuture();
  };
  Prompts prompts() const;

 private:
  const Identity identity_;
  const uint64_t key_;
  const uint64_t domain_key_;
  const double token_bytes_;  // of KV
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  std::atomic<uint32_t> slot_;
  std::atomic<uint32_t> disk_slot_{kNoSlot};
  // Seconds: of a load, and of each token.
  std::atomic<double> disk_base_{0};
  std::atomic<double> disk_token_{0};
  std::atomic<bool> departed_{false};
  std::atomic<bool> heard_{true};
  std::atomic<int64_t> reported_requests_{0};  // without this router's own
  std::atomic<int64_t> reported_tokens_{0};    // others' contexts
  std::atomic<int64_t> queued_tokens_{0};
  std::atomic<int64_t> reported_running_{0};
  std::atomic<int64_t> reported_queued_{0};
  std::atomic<int64_t> answers_in_time_{0};
  std::atomic<int64_t> total_blocks_{0};
  std::atomic<int64_t> free_blocks_{0};
  std::atomic<int64_t> cached_blocks_{0};
  std::atomic<int64_t> leased_blocks_{0};
  std::atomic<int64_t> prompt_count_{0};
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> booked_requests_{0};
  std::atomic<int64_t> booked_tokens_{0};
  CircuitBreaker breaker_;
  mutable absl::Mutex prompts_mutex_;
  Prompts prompts_ ABSL_GUARDED_BY(prompts_mutex_);
  uint64_t last_prompt_ ABSL_GUARDED_BY(prompts_mutex_) = 0;
  mutable absl::Mutex peers_mutex_;  // a leaf, too
  std::shared_ptr<const std::vector<placement::PeerCost>> peer_costs_ ABSL_GUARDED_BY(peers_mutex_) =
      std::make_shared<std::vector<placement::PeerCost>>();
};

}  // namespace baton::router::fleet
