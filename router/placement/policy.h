// Policy: which decode worker a request goes to, and which prefill workers may serve it, in order. The
// placement seam. It sees numbers only (no worker objects, no wire, no clock), so that the router and
// `baton simulate` run the very same code. It learns from Observe() what its selections really took.
//
// One thread at a time (the dispatcher's lock); it never waits. A selection depends on the request, the
// states, the seed and what was observed, and not on the order in which the workers are listed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "protocol/forecast/prefill_forecast.h"
#include "protocol/forecast/step_forecast.h"
#include "router/admission/request.h"
#include "router/index/worker_slot.h"

namespace baton::router::placement {

// A prompt that this router has booked on a prefill worker and that has given no first token yet.
struct Booked {
  absl::Time due;      // its virtual deadline: the order in which the worker serves (prefill_service/queue.h)
  int64_t tokens = 0;  // its uncached prompt tokens,
  int64_t cached = 0;  // behind so many cached ones: what it takes is predicted again at each placement
  absl::Time since;    // when it was booked
  uint64_t request = 0;  // whose it is, for the bookkeeper
};

// Observed cost of shipping from one prefill worker to a decode worker: seconds, and seconds per token.
struct PeerCost {
  uint64_t peer = 0;  // WorkerState.key
  double base = 0;
  double token = 0;
};

// Cost of reading blocks from a worker's disk: seconds, and seconds per token.
struct DiskCost {
  double base = 0;
  double token = 0;
};

// State of a worker when a request is placed.
struct WorkerState {
  WorkerSlot slot;
  // Its place in the prefix index for the blocks on its disk; absent: it keeps none there.
  std::optional<WorkerSlot> disk_slot;
  // Longest prefix of the request's chain that it holds or, by an earlier placement, is expected to hold, in
  // blocks.
  int64_t matched_blocks = 0;
  // The part that it has reported itself: it could use it, or a peer fetch it, now. Known of decode workers,
  // and of prefill workers that serve fetches and hold most of the prefix; 0 of others.
  int64_t confirmed_blocks = 0;
  // Longest prefix of the chain that it has on its disk. They may be in memory too.
  int64_t disk_blocks = 0;
  DiskCost disk_cost;
  // Uncached prompt tokens that wait or are computed there: reported, and booked but not yet reported.
  int64_t queued_tokens = 0;
  // The part booked by this router, one by one, in any order. May be empty: then queued_tokens is all that is
  // known.
  std::span<const Booked> booked;
  // Since when it has been busy with one of them: its last first token, or when it was booked while idle.
  absl::Time busy_since = absl::InfiniteFuture();
  // Requests, likewise reported and booked.
  int64_t waiting = 0;
  int64_t running = 0;
  // Decode workers: tokens of context of all that runs or is booked there.
  int64_t context_tokens = 0;
  int64_t free_blocks = 0;
  int64_t cached_blocks = 0;
  int64_t leased_blocks = 0;  // of the cached ones: they are evicted last
  int64_t total_blocks = 0;   // 0: not reported yet
  // It can fetch a prefix from another worker; and others can fetch from it.
  bool can_fetch = false;
  bool serves_fetches = false;
  // Decode workers: rows of the longest chunk of a prompt in one step, beside running answers. 0: not told.
  int64_t chunk_tokens = 0;
  // Decode workers: a prompt of which it has at most so many tokens not cached is computed there, and one of
  // more on a prefill worker, if there is one. Absent: where it costs less.
  std::optional<int64_t> local_prefill_tokens;
  // Stands for it in peer_costs; 0: for nobody. And for those among which its link is fast; 0: it does not
  // say.
  uint64_t key = 0;
  uint64_t link_domain = 0;
  // Decode workers: by peer, in ascending order.
  std::span<const PeerCost> peer_costs;

  int64_t requests() const { return waiting + running; }
  // Leading blocks of the prompt that others could fetch from it now.
  int64_t fetchable_blocks() const { return serves_fetches ? confirmed_blocks : 0; }
};

using Workers = std::span<const WorkerState>;

// The workers of a fleet, as a request meets them.
struct Pools {
  Workers decode;        // those that take it now; not empty
  Workers prefill = {};  // may be empty
  // Workers that take no request any more, and whose blocks others can still fetch.
  Workers leaving = {};
  // Later than the request's arrival, if it had to wait for a decode worker.
  absl::Time now = absl::UnixEpoch();
};

// Why a placement is as it is: a metric label and a debug field.
enum class Reason {
  kTurn,    // it was this worker's turn
  kLoad,    // the least loaded
  kCold,    // no worker holds a prefix: where it costs least
  kPrefix,  // the holder of the longest prefix
  kSpread,  // a holder of less, because the best holder's queue costs more than the difference
  kFetch,   // a prefill worker that fetches the prefix from a peer
  kLocal,   // the decode worker prefills itself
  // So it does against its rule (local_prefill_tokens), because there is no prefill worker.
  kNoPrefill,
};
inline constexpr size_t kReasons = static_cast<size_t>(Reason::kNoPrefill) + 1;
std::string_view ReasonName(Reason reason);

// Why no fetch is planned although a peer holds more of the prompt than the worker that computes it: a metric
// label and a debug field.
enum class NoFetch {
  kNone,         // one is planned, or no peer holds more
  kCannot,       // that worker can't fetch
  kDearer,       // computing again, or loading from its disk, is predicted to be sooner
  kUnconfirmed,  // the peer is only expected to hold more, or it serves no fetches
};
inline constexpr size_t kNoFetches = static_cast<size_t>(NoFetch::kUnconfirmed) + 1;
// Empty for kNone.
std::string_view NoFetchName(NoFetch why);

// In seconds. TTFT is the sum of all parts but interference, which other requests pay: the seconds of
// computing times the answers that they hold up, times the square of the answers' step in TPOT targets (at
// most 1, and 1 for a worker of which nothing is known): answers that are far from their target can wait,
// those that are close to it would miss it.
struct Prediction {
  double wait = 0;
  double prefill = 0;
  double fetch = 0;  // from a peer or the disk: the part that the wait does not hide
  double ship = 0;
  double interference = 0;

  double ttft() const { return wait + prefill + fetch + ship; }
};

// Where a choice of a request should go. A policy makes it, and DispatchCore completes it.
struct Selection {
  size_t decode = 0;            // index among Pools.decode
  std::vector<size_t> prefill;  // indices among Pools.prefill, best first; empty: prefill locally
  // The worker that computes the prompt (the first prefill worker, or the decode worker if there is none)
  // should fetch this many leading blocks from this peer, of either pool or one that leaves.
  std::optional<WorkerSlot> fetch_from;
  int64_t fetch_blocks = 0;
  NoFetch no_fetch = NoFetch::kNone;
  // Tokens to compute on that worker, and when they are due there: what to book. A policy may leave 0, and
  // DispatchCore counts them then.
  int64_t uncached_tokens = 0;
  absl::Time due = absl::InfiniteFuture();
  Prediction predicted;
  Reason reason = Reason::kLoad;

  // DispatchCore adds the rest.
  // The slots of the decode worker, and of the first of the prefill workers; and the blocks of the prompt
  // that the index counts on each of them to hold.
  WorkerSlot decode_slot;
  std::optional<WorkerSlot> prefill_slot;
  int64_t decode_matched = 0;
  int64_t prefill_matched = 0;
  // Tokens of the prompt that are cached where the others are computed.
  int64_t cached_tokens = 0;
  // Predictions could be trusted when this was decided (TtftDeadlines::Observe).
  bool trusted = false;
};

// The measured cost of a request, for learning. Absent parts are negative.
struct Outcome {
  // Where the prompt was computed: a prefill worker's slot or the decode worker's own.
  WorkerSlot prefill;
  WorkerSlot decode;
  int64_t uncached_tokens = 0;
  int64_t cached_tokens = 0;
  double wait_seconds = -1;     // in the prefill queue
  double compute_seconds = -1;  // its share of the steps that computed it
  double ship_seconds = -1;     // not hidden behind compute
  int64_t shipped_bytes = 0;
  double fetch_seconds = -1;  // from a peer, from the request to the last byte
  int64_t fetched_tokens = 0;
  // A decode step there, and what it held: the means over the steps of the answer.
  double step_seconds = -1;
  double batch = 0;
  double context_tokens = 0;
  // Length of the whole answer.
  int64_t output_tokens = -1;
};

// At most this many prefill workers are named to the decode worker.
inline constexpr size_t kMaxPrefillTargets = 3;

class Policy {
 public:
  virtual ~Policy() = default;
  // A metric label.
  virtual std::string_view name() const = 0;
  virtual Selection Select(const Request& request, const Pools& pools) = 0;
  virtual void Observe(const Outcome&) {}
  // Takes a worker's own report of its steps' cost, before anything was observed of it. Ignored if something
  // was, or if OnWorkerBack restored it.
  virtual void Introduce(WorkerSlot, const forecast::StepCost&) {}
  // The worker of this incarnation leaves the slot: what was learnt of it is kept, in case it comes back on
  // another slot. OnSlotFreed follows.
  virtual void OnWorkerLeft(WorkerSlot, Incarnation) {}
  // The worker of this incarnation is on this slot now: what was learnt of it, if it was here before, is
  // restored.
  virtual void OnWorkerBack(WorkerSlot, Incarnation) {}
  // The slot has no worker any more, and may become another worker's.
  virtual void OnSlotFreed(WorkerSlot) {}
};

// "prefix_affinity", "least_loaded" or "round_robin"; INVALID_ARGUMENT names them. The seed decides between
// equals; `targets` are what prefill workers order their queues by, and decode workers keep the steps of
// running answers within `slo_tpot` seconds.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(
    std::string_view name, uint64_t seed,
    const forecast::QueueTargets& targets = forecast::QueueTargets::For(forecast::kDefaultSloTtft),
    double slo_tpot = forecast::kDefaultSloTpot);

}  // namespace baton::router::placement
