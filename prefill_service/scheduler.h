// Scheduler: which prompt tokens the next step of a prefill worker computes, and the shipping of their KV.
// Several prompts share a step under one token budget, each in chunks, ordered by virtual deadline (queue.h):
// prompts with little uncached work go first, between the chunks of a long one too, and no prompt starves. A
// prompt can be cancelled between chunks. It begins only when the pool has all its blocks, so two prompts
// never wait for each other.
//
//   kQueued --blocks reserved--> kComputing --logits and last chunk sent--> kShipped --> released
//
// While a prompt waits, what it lacks may be on its way from a peer (common/fetch/prefix_prefetch.h). When
// its turn comes, it waits on or is computed, whichever is predicted to be sooner; others go first meanwhile.
//
// No gRPC, no thread of its own, no wall clock: driven by the engine's loop, tested by calling Step().
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/prefill.pb.h"
#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/engine/sequence_kv.h"
#include "common/fetch/peer_fetch.h"
#include "common/fetch/prefix_prefetch.h"
#include "common/forecast/prefill_forecast.h"
#include "common/forecast/step_forecast.h"
#include "common/rpc/event_sink.h"
#include "common/telemetry/tracer.h"
#include "common/transfer/link.h"
#include "common/transfer/shipment.h"
#include "prefill_service/probe.h"
#include "prefill_service/queue.h"

namespace baton::prefill_service {

// Default rows of a step: enough for the backend's matrix products to be bound by
// arithmetic, not by reading weights, and few enough that a short prompt need not wait long.
int64_t DefaultStepTokens(std::string_view backend);

struct SchedulerOptions {
  // Rows of one prompt in one step, at least a block; cut to whole blocks.
  int64_t chunk_tokens = 512;
  // Rows of all prompts in one step.
  int64_t token_budget = 512;
  // Prompts that wait before Submit refuses.
  size_t max_queued = 1024;
  // Seconds to the first token, which the queue is ordered by: the routers'.
  double slo_ttft = forecast::kDefaultSloTtft;
  // Share of the tail against goodput in that order, in [0, 1]: the routers'.
  double tail_share = forecast::kDefaultTailShare;
  // What a step takes here, until prompts have been seen.
  forecast::StepCost step_cost;
  // Payload of one chunk message.
  int64_t max_chunk_bytes = 4 << 20;
};

// One prompt to prefill. The base is the way back to the decode worker.
struct Job : rpc::EventSink<v1::PrefillEvent> {
  std::string request_id;
  std::vector<TokenId> tokens;
  kv::BlockHash root;
  transfer::Ticket ticket;
  // Lower runs first; a step is worth forecast::kPriorityStep of waiting.
  int priority = 0;
  // What of the prompt stays cached here in preference to other blocks.
  std::vector<kv::PrefixLease> leases;
  // Where its leading blocks can be fetched; 0 blocks: nowhere. At least one token follows them.
  v1::PeerPrefix peer;
  // What calls carry that it causes, and its spans: null if it is not recorded.
  telemetry::TraceContext trace;
  std::shared_ptr<telemetry::RequestSpans> spans;
};

class Scheduler {
 public:
  // All outlive it.
  Scheduler(const SchedulerOptions& options, engine::Engine& engine, transfer::LinkSender& link,
            const Clock& clock, Probe& probe, const fetch::PeerFetch& peer_fetch = {});
  ~Scheduler();

  // Queues a prompt that the service has validated. RESOURCE_EXHAUSTED: the queue is full;
  // FAILED_PRECONDITION: the prompt would not fit in the pool even if it were alone.
  absl::Status Submit(JobId id, Job job);
  // Ends a prompt without a message, whatever its state. Unknown ids are ignored.
  void Cancel(JobId id);
  // One step. Returns whether there is more to do at once.
  bool Step();

  size_t queued() const { return queued_.size(); }
  size_t computing() const { return computing_.size(); }
  // Ends every prompt with `status`.
  void Abort(const absl::Status& status);
  // Prompt tokens still to compute, of all jobs.
  int64_t pending_tokens() const;

 private:
  struct Prompt {
    JobId id;
    Job job;
    absl::Time arrival;
    absl::Time started;
    forecast::VirtualDeadline due;  // fixed when it begins
    // While it waits: the chain of its full blocks, and how many of them are cached here.
    std::vector<kv::BlockHash> chain;
    int64_t matched_blocks = 0;
    // Its fetch, if it has one; and what came of it.
    std::unique_ptr<fetch::PrefixPrefetch> prefetch;
    int64_t matched_before_fetch = 0;
    int64_t prefetched_blocks = 0;
    absl::Time last_prefetched;  // the last of them
    double fetch_seconds = 0;
    int64_t fetched_tokens = 0;
    double compute_seconds = 0;  // its share of the steps that it was in
    std::unique_ptr<engine::SequenceKv> kv;
    std::unique_ptr<transfer::Shipment> shipment;
    int64_t cached_shipped = 0;  // blocks of the cached prefix that have left
    bool logits_sent = false;

    int64_t size() const { return static_cast<int64_t>(job.tokens.size()); }
    int64_t remaining() const { return size() - (kv ? kv->computed_tokens() : 0); }
    int64_t cached_blocks() const { return kv->cached_tokens() / kBlockTokens; }
  };
  struct Planned {
    std::list<Prompt>::iterator prompt;
    int64_t rows;
  };

  forecast::VirtualDeadline DueTime(const Prompt& prompt) const;
  void BeginFetch(Prompt& prompt);
  void OnPrefetched(JobId id, int64_t blocks);
  // What its fetch spares, if all comes that it was asked for. Seconds.
  double Saved(const Prompt& prompt) const;
  // Whether a prompt with a prefetch should wait for it, rather than compute. Ends the prefetch if not.
  bool AwaitsBlocks(Prompt& prompt);
  // The one place where prefetches are released.
  void ReleasePrefetch(Prompt& prompt);
  // Ends prefetches and fetches by peers, for a prompt whose turn it is. False if that frees no block.
  bool MakeRoom();
  // More of a waiting prompt's prefix may be cached by now: then it is due earlier.
  void Reconsider();
  void Admit();
  // Whether the next prompt in order should begin now, rather than stay where a later one can still pass it.
  bool WantsAnother(const Prompt& next) const;
  void ReportQueue();
  // Ships what is left of cached prefixes, as long as the peer takes it. True if anything left.
  bool ShipCached();
  std::vector<Planned> Plan();
  void Compute(std::vector<Planned>& plan);
  void SendLogits(Prompt& prompt, std::span<const float> logits);
  // The spans of a prompt that is computed, if it is recorded.
  void AddSpans(Prompt& prompt, absl::Time computed) const;
  // Ends prompts that are done.
  void Retire();
  void Fail(std::list<Prompt>::iterator prompt, const absl::Status& status);

  const SchedulerOptions options_;
  engine::Engine& engine_;
  transfer::LinkSender& link_;
  const Clock& clock_;
  Probe& probe_;
  std::list<Prompt> queued_;
  absl::flat_hash_map<JobId, std::list<Prompt>::iterator> waiting_;  // those queued
  Queue order_;                                                      // of service, of those queued
  std::list<Prompt> computing_;                                      // in the order of service
  forecast::PrefillForecast forecast_;
  bool more_cached_ = false;  // since the last Reconsider
  const fetch::PeerFetch peer_fetch_;
  // Prefetches that were released inside their own callbacks, or while a link still writes. Erased at a step.
  std::vector<std::unique_ptr<fetch::PrefixPrefetch>> released_prefetches_;
  engine::Batch batch_;
};

}  // namespace baton::prefill_service
