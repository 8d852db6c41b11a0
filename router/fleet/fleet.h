// Fleet: which workers there are and which may be used, from what their Watch streams say. Plain state, no
// gRPC: the Watcher feeds it, placement reads View, an immutable list that is replaced when membership
// changes, and the prefix index learns from it who holds what. Endpoints come and go at run time: one that
// goes leaves the view and the index at once, and what runs on its worker goes on. Workers of one model must
// have one fingerprint: the largest group with a decode worker is used (ties: the oldest endpoint), the
// others are left out, logged and counted with the field that differs. A worker that is listed under two
// addresses (a name with A and AAAA records) is used once. Any thread; the listener runs without a lock held,
// on the thread of the caller that changed something.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "baton/fleet/v1/worker.pb.h"
#include "common/base/clock.h"
#include "protocol/forecast/step_forecast.h"
#include "router/fleet/booking.h"
#include "router/fleet/worker.h"
#include "router/index/prefix_index.h"
#include "router/metrics/probe.h"

namespace baton::router::fleet {

// The workers that may be used now.
struct View {
  std::vector<std::shared_ptr<Worker>> decode;
  std::vector<std::shared_ptr<Worker>> prefill;
  // Those of both roles that drain: they take no requests, and peers can fetch what they hold.
  std::vector<std::shared_ptr<Worker>> leaving;
  // With the tenant's salt, the source of the roots of their block hashes. While there are no workers, as it
  // was; empty: there was none yet, or they do not say.
  std::string block_hash_domain;
  // AnswerDigest of their fingerprint; empty: there is none.
  std::string answer_digest;
  // All workers that may be used take reusable spans.
  bool chunk_reuse = true;
};

class Fleet {
 public:
  struct Endpoint {
    std::string address;
    Role role = Role::kDecode;
    std::shared_ptr<grpc::Channel> channel = nullptr;
  };
  // What is known of where workers should be.
  struct Listing {
    // Every source has answered or failed at least once.
    bool complete = true;
    // Decode addresses that are not known, and why, for people.
    std::string trouble;
  };
  struct Options {
    std::string router_id;
    std::vector<Endpoint> endpoints;  // from the start; their numbers are 0, 1, ...
    Listing listing = {};
    // Of the router's own model folder; a worker that serves another vocabulary is left out. 0: not checked.
    int64_t vocabulary = 0;
    // The folder's text::TokenizerDigest and model::EndsDigest, compared in the same way with those that a
    // worker tells. Empty: not checked.
    std::string tokenizer_digest = {};
    std::string ends_digest = {};
    // The digest of the chat template that this router renders for these workers. A warning says so if
    // another router has another one. Empty: it is not told, and nothing is compared.
    std::string template_digest = {};
    // Told to the workers.
    forecast::LatencyTargets targets = {};
  };

  // Without an index a worker's slot is its endpoint.
  Fleet(Options options, Probe& probe, index::PrefixIndex* index = nullptr);

  // Called after anything that may let a waiting request be placed, or must fail it. Replaces the one
  // before; set while no event can come: before the watcher starts, and after it has ended.
  void SetListener(std::function<void()> listener) { listener_ = std::move(listener); }

  const std::string& router_id() const { return options_.router_id; }
  const std::string& template_digest() const { return options_.template_digest; }
  const forecast::LatencyTargets& targets() const { return options_.targets; }

  // A number that no other endpoint ever had or will have.
  int AddEndpoint(Endpoint endpoint);
  // To be called when its Watch stream has ended, and no event of it is pending.
  void RemoveEndpoint(int endpoint);
  void SetListing(Listing listing);

  // An event of an endpoint's Watch stream. DATA_LOSS when it does not follow the one before: subscribe
  // again. FAILED_PRECONDITION when the worker is not what the list says; it is left out. NOT_FOUND when the
  // endpoint has gone.
  absl::Status OnEvent(int endpoint, const baton::fleet::v1::WatchEvent& event);
  // The Watch stream broke, and another one is asked for: the worker stays in the view, and takes no requests
  // until it is heard again.
  void OnBroken(int endpoint);
  // The Watch stream ended and the worker can't be reached.
  void OnDown(int endpoint, const absl::Status& why);

  std::shared_ptr<const View> view() const;
  // The listing is complete and every endpoint has answered or failed at least once.
  bool settled() const;
  // A decode worker is on its way: one says that it is starting, or one that took requests drains, which
  // seldom happens without another to follow.
  bool decode_expected() const;
  // UNAVAILABLE, naming each decode address and why it can't be used: for people who run the fleet.
  absl::Status NoDecodeWorker() const;
  // UNAVAILABLE for clients, who may be strangers and learn no address. The log has NoDecodeWorker, whenever
  // that has changed.
  absl::Status TellNoDecodeWorker() ABSL_LOCKS_EXCLUDED(mutex_);

  // Books the work on both (without a prefill worker the decode worker computes the prompt) and passes the
  // decode worker's circuit breaker.
  Booking Book(std::shared_ptr<Worker> decode, std::shared_ptr<Worker> prefill, const Work& work,
               absl::Time now);
  // Workers that got or lost their slot since the last call, in order: a table that is kept by slot moves
  // or forgets it. One that is back with its old incarnation is the same worker on another slot.
  struct Move {
    WorkerSlot slot;
    Incarnation incarnation;
    bool arrived = false;  // else it has left the slot
    // What one that arrives says that its steps take, if it does and that can be.
    std::optional<forecast::StepCost> step_cost = {};
    friend bool operator==(const Move&, const Move&) = default;
  };
  std::vector<Move> TakeMoves();
  void Changed() const {
    if (listener_) listener_();
  }

 private:
  friend class Booking;
  struct EndpointState {
    Endpoint listed;
    std::shared_ptr<Worker> worker = nullptr;  // null when down
    uint64_t sequence = 0;                     // of the last event; 0 before the snapshot
    bool draining = false;
    bool starting = false;  // says so; it has no worker yet
    bool served = false;    // its worker was in the view
    bool answered = false;
    bool usable = false;                       // in the view
    std::string trouble = "not answered yet";  // why it is not usable, for people
    std::string differing_field = {};
    std::string left_out = {};  // the field that metrics show it to be left out for
    std::string block_hash_domain = {};
    // Digests of the routers that watch it, this one's included: at most kMaxTemplates.
    std::set<std::string> templates = {};
  };
  // As many digests of templates are kept of a worker.
  static constexpr size_t kMaxTemplates = 4;
  // What an event says of blocks, to be told to the index once the lock is released: the events of an
  // endpoint come one after the other.
  struct BlockNews {
    WorkerSlot slot;
    std::string_view stored;
    std::string_view evicted;
    std::optional<WorkerSlot> disk_slot = {};
    std::string_view disk_stored = {};
    std::string_view disk_evicted = {};
  };

  void BookingEnded() const;
  using Endpoints = std::map<int, EndpointState>;  // by number, so the oldest is the first
  absl::Status Apply(int endpoint, const baton::fleet::v1::WatchEvent& event, BlockNews* news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeSnapshot(int endpoint, EndpointState& state, const baton::fleet::v1::Snapshot& snapshot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The field in which a worker differs from the router's model folder, and why it is left out; nothing if it
  // does not.
  struct Difference {
    std::string_view field;
    std::string why;
  };
  std::optional<Difference> Compare(const Endpoint& listed, const baton::fleet::v1::WorkerInfo& info) const;
  // Warns if there are other templates than before among the fleet's routers.
  void TakeTemplates(EndpointState& state, const baton::fleet::v1::ChatTemplates& templates)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CompareTemplates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const BlockNews& news) const;
  // A slot for the endpoint's worker that holds nothing yet. Nothing if there are too many workers.
  std::optional<WorkerSlot> JoinIndex(int endpoint);
  void LeaveIndex(EndpointState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Chooses the fingerprint group and replaces the view.
  void Rebuild() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // In metrics; empty: it is not left out for a difference.
  void ShowLeftOut(EndpointState& state, std::string field) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The endpoint whose fingerprint the fleet goes by, or null.
  const EndpointState* Reference() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Probe& probe_;
  index::PrefixIndex* const index_;  // null: nothing is matched
  std::function<void()> listener_;
  mutable absl::Mutex mutex_;
  std::string told_ ABSL_GUARDED_BY(mutex_);  // by TellNoDecodeWorker, in the log
  Endpoints endpoints_ ABSL_GUARDED_BY(mutex_);
  int next_endpoint_ ABSL_GUARDED_BY(mutex_) = 0;
  Listing listing_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
  std::vector<Move> moves_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> other_templates_ ABSL_GUARDED_BY(mutex_);  // of other routers, as they were told last
};

}  // namespace baton::router::fleet
