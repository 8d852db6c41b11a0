// Scheduler: which prompt tokens the next step of a prefill worker computes, and the shipping of their KV.
// Several prompts share a step under one token budget, each in chunks, ordered by virtual deadline (queue.h):
// prompts with little uncached work go first, between the chunks of a long one too, and no prompt starves. A
// prompt can be cancelled between chunks. It begins only when the pool has all its blocks, so two prompts
// never wait for each other.
//
//   kQueued --blocks reserved--> kComputing --logits and last chunk sent--> kShipped --> released
//
// While a prompt waits, what it lacks may be on its way from a peer (transfer/fetch/prefix_prefetch.h). When
// its turn comes, it waits on or is computed, whichever is predicted to be sooner; others go first meanwhile.
//
// No gRPC, no thread of its own, no wall clock: driven by the engine's loop, tested by calling Step().
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/prefill.pb.h"
#include "common/base/clock.h"
#include "common/rpc/event_sink.h"
#include "common/telemetry/tracer.h"
#include "engine/engine.h"
#include "engine/reused_spans.h"
#include "engine/sequence_kv.h"
#include "prefill_service/probe.h"
#include "prefill_service/queue.h"
#include "protocol/forecast/prefill_forecast.h"
#include "protocol/forecast/step_forecast.h"
#include "transfer/fetch/peer_fetch.h"
#include "transfer/fetch/prefix_prefetch.h"
#include "transfer/link.h"
#include "transfer/shipment.h"

namespace baton::engine {
class ChunkPlanner;
}

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
  // The queue is ordered by them, until a router tells others.
  forecast::LatencyTargets targets;
  // What a step takes here, until prompts have been seen.
  forecast::StepCost step_cost;
  // Payload of one chunk message.
  int64_t max_chunk_bytes = 4 << 20;
  // Tokens of reusable spans that land between two steps.
  int64_t landing_tokens = 4096;
  // Whether prompts may have reusable spans (--chunk-reuse).
  bool chunk_reuse = false;
};

// One prompt to prefill. The base is the way back to the decode worker.
struct Job : rpc::EventSink<fleet::v1::PrefillEvent> {
  std::string request_id;
  std::vector<TokenId> tokens;
  kv::BlockHash root;
  protocol::Ticket ticket;
  // Lower runs first; a step is worth forecast::kPriorityStep of waiting.
  int priority = 0;
  // What of the prompt stays cached here in preference to other blocks.
  std::vector<kv::PrefixLease> leases;
  // Its spans whose KV is taken from their canonical sequences.
  std::vector<kv::ReusableSpan> reusable;
  // Where its leading blocks can be fetched; 0 blocks: nowhere. At least one token follows them.
  fleet::v1::PeerPrefix peer;
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
  // FAILED_PRECONDITION: the prompt would not fit in the pool even if it were alone, or it has reusable spans
  // and this worker takes none.
  absl::Status Submit(JobId id, Job job);
  // The order of service follows them, of what waits and of what is computed.
  void SetTargets(const forecast::LatencyTargets& targets);
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
    kv::PromptChain rule;
    std::unique_ptr<engine::ReusedSpans> reused;  // null: it has no reusable spans
    // While it waits: the chain of its full blocks, and how many of them are cached here.
    std::vector<kv::BlockHash> chain;
    int64_t matched_blocks = 0;
    bool asked_disk = false, asked_shared = false;  // which of its blocks they have
    // Its fetch, if it has one: where it is from, and who runs it; and what came of all.
    std::unique_ptr<fetch::PrefixPrefetch> prefetch;
    fleet::v1::PeerPrefix source;
    fetch::Fetcher* fetcher = nullptr;  // null before the first
    // Of a fetch for a reusable span: which, and what it spares. And how many of spans times tiers were
    // asked.
    std::optional<size_t> fetching_span;
    double span_saved = 0;
    size_t asked_spans = 0;
    std::string fetched_from;
    int64_t matched_before_fetch = 0;  // before the first
    int64_t prefetched_blocks = 0;
    absl::Time last_prefetched;  // the last of them
    double fetch_seconds = 0;
    int64_t fetched_tokens = 0;
    double compute_seconds = 0;  // its share of the steps that it was in
    std::unique_ptr<engine::SequenceKv> kv;
    std::unique_ptr<transfer::Shipment> shipment;
    int64_t cached_shipped = 0;  // blocks of the cached prefix that have left
    int64_t found_tokens = 0;    // of reusable spans, behind what is cached here or on the other side
    bool logits_sent = false;

    Prompt(JobId number, Job prompt)
        : id(number), job(std::move(prompt)), rule(job.root, std::move(job.reusable)) {}

    int64_t size() const { return static_cast<int64_t>(job.tokens.size()); }
    // Rows still to compute: of the prompt itself, and of its spans' canonical sequences.
    int64_t own_rows() const {
      const int64_t computed = kv ? kv->computed_tokens() : 0;
      return reused == nullptr ? size() - computed : reused->OwnRows(computed);
    }
    int64_t remaining() const {
      return kv == nullptr ? size() : own_rows() + (reused ? reused->remaining() : 0);
    }
    int64_t cached_blocks() const { return kv->cached_tokens() / kBlockTokens; }
    // Of the prompt's tokens, those that are here or on the other side when it begins, or are found.
    int64_t cached_tokens() const;
  };
  // Rows of a step: of a prompt, or of the canonical sequence of one of its spans. With the last of a
  // prompt's own, how many of its tokens are computed or landed after the step.
  struct Planned {
    std::list<Prompt>::iterator prompt;
    int64_t first = 0;
    int64_t rows = 0;
    std::optional<int64_t> end = {};
    std::optional<size_t> span = {};
  };

  forecast::VirtualDeadline DueTime(const Prompt& prompt) const;
  // scheduler_fetch.cc.
  //
  // Loads what a tier has of a waiting prompt, or has a peer send what that holds, if it is worth it. Each is
  // asked once: the disk, a peer, the shared tier.
  void BeginFetch(Prompt& prompt);
  bool BeginLoad(Prompt& prompt, fetch::DiskSource* tier, bool& asked);
  bool BeginFetchFrom(Prompt& prompt, fetch::Fetcher& fetcher, const fleet::v1::PeerPrefix& source);
  // Seconds that a waiting prompt will wait for others.
  double WaitOf(const Prompt& prompt) const;
  void OnPrefetchEnded(JobId id);
  void OnPrefetched(JobId id, int64_t blocks);
  // What a fetch of so many leading blocks spares, if all come. Seconds.
  double Saved(const Prompt& prompt, int64_t blocks) const;
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
  // scheduler_reuse.cc: prompts with reusable spans.
  //
  // Loads what a tier has of canonical sequences, one after the other, if it is worth it. False: nothing
  // more.
  bool BeginSpanFetch(Prompt& prompt);
  bool BeginSpanFetchFrom(Prompt& prompt, size_t span, fetch::DiskSource& tier);
  // Lands tokens whose canonical sequences are computed. True if any did.
  bool Land();
  // Adds rows of a prompt's spans, and of the prompt. False: the step has no room for more.
  bool PlanSpans(std::list<Prompt>::iterator prompt, engine::ChunkPlanner& chunks,
                 std::vector<Planned>& plan);
  bool PlanRuns(std::list<Prompt>::iterator prompt, engine::ChunkPlanner& chunks, std::vector<Planned>& plan);
  // Blocks of the prompt that nothing is added to once so many tokens are computed.
  static int64_t CompleteBlocks(const Prompt& prompt, int64_t computed);
  void Compute(std::vector<Planned>& plan);
  void SendLogits(Prompt& prompt, std::span<const float> logits);
  // The spans of a prompt that is computed, if it is recorded.
  void AddSpans(Prompt& prompt, absl::Time computed) const;
  // Ends prompts that are done.
  void Retire();
  void Fail(std::list<Prompt>::iterator prompt, const absl::Status& status);

  const SchedulerOptions options_;
  forecast::LatencyTargets targets_ = options_.targets;
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
