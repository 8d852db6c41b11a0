// Queue: the choices that wait for a decode worker. Between tenants, deficit round robin in tokens (Shreedhar
// and Varghese, "Efficient fair queuing using deficit round robin", SIGCOMM 1995): in each round a tenant's
// credit grows by quantum * weight, and its next choice goes when the credit covers the choice's tokens.
// Rounds in which no choice can go are skipped in one step, so each operation is O(log n) however large a
// prompt is. Within a tenant: the lower priority number first, and a step of priority is worth kAgeing of
// waiting, so no choice starves; then first come, first served.
//
// Bounded in entries, tokens and bytes, in all and by tenant. Plain bookkeeping without a lock or a clock:
// its owner has both. The order of service depends on the calls alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/time/time.h"
#include "common/base/named_type.h"
#include "router/admission/refusal.h"
#include "router/admission/tenant_limits.h"

namespace baton::router::admission {

// A waiting choice. Grows with arrival.
using EntryId = NamedType<uint64_t, struct EntryIdTag>;

struct Entry {
  TenantId tenant;
  int priority = 0;
  // Cost of the choice: prompt and expected answer. At least 1.
  int64_t tokens = 1;
  int64_t bytes = 0;
  absl::Time arrival = absl::UnixEpoch();
  absl::Time deadline = absl::InfiniteFuture();
};

class Queue {
 public:
  // In all.
  struct Limits {
    int64_t entries = 1024;
    int64_t tokens = int64_t{64} << 20;
    int64_t bytes = int64_t{256} << 20;
  };
  // Credit per round and unit of weight. About one short prompt: smaller is fairer in the short run.
  static constexpr int64_t kQuantumTokens = 512;
  static constexpr absl::Duration kAgeing = absl::Seconds(5);

  explicit Queue(Limits limits) : limits_(limits) {}

  // A tenant that was never set has weight 1 and no limits of its own.
  void SetTenant(TenantId tenant, double weight, const QueueLimits& limits);
  // A paused tenant's choices wait while others are served: it has all that it may run.
  void Pause(TenantId tenant, bool paused);

  // Which limit `count` more entries of `tokens` and `bytes` each would break, if any.
  std::optional<Refusal> CheckRoom(TenantId tenant, int64_t count, int64_t tokens, int64_t bytes) const;
  // When the whole queue is full: the choice that should go so that `tenant` can have room, if another tenant
  // waits with more for its weight than `tenant` would, `tokens` included. The caller removes and answers it.
  std::optional<EntryId> Displaceable(TenantId tenant, int64_t tokens) const;

  // The limits are not checked here.
  EntryId Add(const Entry& entry);
  // Back at its old place, with `refund` tokens of credit: what Serve charged for an attempt that did not
  // work out. Beyond the limits too: it was admitted once.
  void PutBack(EntryId id, const Entry& entry, int64_t refund);
  // Leaves unserved. Nothing if it is not there.
  std::optional<Entry> Remove(EntryId id);

  // Whose turn it is. Nothing: empty, or all who wait are paused.
  std::optional<EntryId> First() const;
  // Takes First() out and charges its tenant.
  Entry Serve(EntryId id);
  // Takes a choice out before its turn and charges its tenant. Nothing if its tenant is paused.
  std::optional<Entry> Overtake(EntryId id);
  // Removes and returns those whose deadline has come, earliest first.
  std::vector<std::pair<EntryId, Entry>> TakeExpired(absl::Time now);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return bytes_; }
  bool empty() const { return entries_.empty(); }

  // One tenant's share of the queue.
  struct Depth {
    int64_t entries = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;
  };
  Depth depth(TenantId tenant) const;
  // The entries before a waiting choice, about: its own tenant's line as it stands, and the others' by their
  // weights.
  struct Ahead {
    EntryId id;
    double entries = 0;
    double tokens = 0;
  };
  // For all that wait, a tenant's in its order. O(n).
  std::vector<Ahead> WhatIsAhead() const;
  // An upper estimate of the tokens that will be served before a new choice of this tenant and priority.
  double TokensBefore(TenantId tenant, int priority) const;

 private:
  // When it would have arrived had it the priority 0, then arrival.
  using Place = std::pair<absl::Time, EntryId>;
  // The round in which the tenant can go next; within it, in order of joining.
  using Turn = std::tuple<uint64_t, uint64_t, TenantId>;
  struct Line {
    double weight = 1;
    QueueLimits limits;
    bool paused = false;
    std::set<Place> order;
    Depth depth;
    std::array<int64_t, kWorstPriority - kBestPriority + 1> tokens_by_priority{};
    double deficit = 0;  // credit, as of `round`
    uint64_t round = 0;  // up to which it was credited
    uint64_t joined = 0;
    std::optional<Turn> turn;  // while it has something to serve and is not paused
    double backlog = 0;        // its key in by_backlog_, if depth.entries > 0
  };

  void Insert(EntryId id, const Entry& entry, Line* line);
  void Erase(EntryId id, const Entry& entry, Line* line);
  // After anything about the line has changed: its turn and its backlog.
  void Reschedule(TenantId tenant, Line* line);
  static Place PlaceOf(EntryId id, const Entry& entry);
  static int64_t& ByPriority(Line* line, int priority);

  const Limits limits_;
  uint64_t arrivals_ = 0;
  int64_t tokens_ = 0;
  int64_t bytes_ = 0;
  absl::flat_hash_map<EntryId, Entry> entries_;
  absl::node_hash_map<TenantId, Line> lines_;
  std::set<Turn> turns_;
  uint64_t round_ = 0;
  uint64_t joins_ = 0;
  std::set<std::pair<double, TenantId>> by_backlog_;  // waiting tokens per weight
  double waiting_weight_ = 0;                         // of lines that aren't empty
  std::set<std::pair<absl::Time, EntryId>> deadlines_;
};

}  // namespace baton::router::admission
