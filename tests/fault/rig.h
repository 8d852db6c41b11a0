// Rig: the whole service in one thread and in virtual time: a client, the router's request flow, two decode
// and two prefill workers with their real schedulers and engines, joined by Wires. A turn is a millisecond.
// What only a process could do (die, hang, restart) is done to its Node; what it held goes with it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "decode_service/scheduler.h"
#include "engine/engine.h"
#include "engine/solo.h"
#include "prefill_service/scheduler.h"
#include "router/api/request_flow.h"
#include "router/api/served_model.h"
#include "tests/fault/wire.h"
#include "text/tokenizer.h"
#include "transfer/fetch/fetcher.h"
#include "transfer/fetch/peer_server.h"
#include "transfer/host_link.h"

namespace baton::fault {

using PrefillWire = Wire<fleet::v1::PrefillEvent>;
using DecodeWire = Wire<fleet::v1::DecodeEvent>;
using FetchWire = Wire<fleet::v1::FetchEvent>;

// A safeguard replaced by a double without it, to see the matrix turn red.
struct Without {
  bool checksum = false;  // the link takes any bytes
  bool fence = false;     // every chunk is made to name the ticket that is open
  bool release = false;   // an ended call does not reach the scheduler
};

// The worker that fetches the prompt's first blocks from the second prefill worker: none, the first prefill
// worker, or the decode worker, which then computes the rest itself.
enum class Fetches { kNobody, kPrefill, kDecode };

struct RigOptions {
  Without without;
  // How long a write into the pool takes; 0: it is done when the chunk has been taken.
  absl::Duration write_takes;
  Fetches fetches = Fetches::kNobody;
  // Ranks of each worker. With more than one of either kind all matrices are 8 bit integers, whose sums are
  // exact, so that an answer's bits do not depend on who computed what.
  int prefill_tp = 1, decode_tp = 1;
  // Clients ask for progress, and time goes on by so much with each turn.
  bool progress = false;
  absl::Duration turn = absl::Milliseconds(1);

  bool of_ranks() const { return prefill_tp > 1 || decode_tp > 1; }
};

// A link of its own beside the call, as between GPUs: a write ends a while after the message that announced
// it came.
class SlowReceiver final : public transfer::LinkReceiver {
 public:
  SlowReceiver(const Clock& clock, absl::Duration takes) : clock_(clock), takes_(takes) {}
  std::string_view name() const override { return "host"; }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view, transfer::Pieces pieces,
               Done done) override;
  // Ends the writes that are due.
  void Tick();
  // The link is gone: every write ends.
  void Close();
  size_t writing() const { return writes_.size(); }

 private:
  struct Write {
    const fleet::v1::KvChunk* chunk;
    transfer::Pieces pieces;
    Done done;
    absl::Time due;
  };
  const Clock& clock_;
  const absl::Duration takes_;
  std::deque<Write> writes_;
  transfer::HostLinkReceiver host_;
};

// A client's view.
struct Seen {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> digests;
  std::string text;
  int started = 0;
  std::vector<v1::Progress> progress;  // before the first token
  int late_progress = 0;               // behind it
  std::optional<v1::Finished> finished;
  std::optional<absl::Status> status;
  int ends = 0;
  absl::Time ended;

  void Take(const v1::GenerateResponse& response) {
    started += response.has_started();
    if (response.has_progress() && tokens.empty()) progress.push_back(response.progress());
    late_progress += response.has_progress() && !tokens.empty();
    const v1::Delta& delta = response.delta();
    tokens.insert(tokens.end(), delta.token_ids().begin(), delta.token_ids().end());
    digests.insert(digests.end(), delta.logits_digests().begin(), delta.logits_digests().end());
    text += delta.text();
    if (response.has_finished()) finished = response.finished();
  }
};

struct PrefillNode : Node {
  engine::Engine* engine = nullptr;
  transfer::HostLinkSender link;
  telemetry::Metrics metrics;
  std::unique_ptr<prefill_service::Probe> probe;
  // Over the host link, whatever the rig's hand-offs go by.
  transfer::HostLinkReceiver receiver;
  std::unique_ptr<fetch::Probe> fetch_probe;
  std::unique_ptr<fetch::FetchClient> fetch_client;
  std::unique_ptr<fetch::Fetcher> fetcher;
  std::unique_ptr<fetch::PeerServer> server;
  std::unique_ptr<prefill_service::Scheduler> scheduler;
  std::vector<BlockId> hog;  // somebody else's blocks
};

class RigPrefillClient;

struct DecodeNode : Node {
  engine::Engine* engine = nullptr;
  std::unique_ptr<transfer::LinkReceiver> link;
  SlowReceiver* slow = nullptr;  // the same, if it is one
  telemetry::Metrics metrics;
  std::unique_ptr<decode_service::Probe> probe;
  std::unique_ptr<RigPrefillClient> client;
  std::unique_ptr<fetch::Probe> fetch_probe;
  std::unique_ptr<fetch::FetchClient> fetch_client;
  std::unique_ptr<fetch::Fetcher> fetcher;
  std::unique_ptr<decode_service::Scheduler> scheduler;
  std::vector<BlockId> hog;
};

// One request on its way: the router's flow and what its client sees.
struct Request {
  std::unique_ptr<router::RequestFlow> flow;
  std::shared_ptr<DecodeWire> wire;  // of the newest attempt
  DecodeNode* decode = nullptr;      // where it runs
  bool wants_place = false;
  absl::Time may_place;
  std::vector<Incarnation> avoid;
  bool router_dead = false;
  bool flow_ended = false;
  bool writing = false;   // a Write has not been answered
  bool vanished = false;  // the client takes nothing more
  Seen seen;
  bool accepted = false;         // an Accepted has reached the router
  bool decode_finished = false;  // Finished has left the decode worker's scheduler
};

class Rig {
 public:
  explicit Rig(const RigOptions& options = {});
  ~Rig();

  // Engines are shared by all rigs of the process, their caches emptied for each.
  // of_ranks: RigOptions::of_ranks.
  static engine::Engine& SoloEngine(bool of_ranks = false);

  Request& Ask(const std::vector<TokenId>& prompt, const sampling::Params& params, uint32_t max_tokens,
               absl::Time deadline = absl::InfiniteFuture());
  // A millisecond (RigOptions::turn) of everybody.
  void Turn();
  // Until the client has its answer and nobody does anything, at most `most` virtual time.
  void Settle(absl::Duration most);
  absl::Time now() const { return clock_.Now(); }

  // Events of a process.
  void Kill(PrefillNode& node);
  void Kill(DecodeNode& node);
  void Restart(PrefillNode& node);
  void Restart(DecodeNode& node);
  void Stop(Node& node) { node.stopped = true; }
  void Continue(Node& node) { node.stopped = false; }
  void KillRouter(Request& request);
  // Events of a client.
  void Cancel(Request& request);
  void Vanish(Request& request);  // its host is gone: nothing is heard, keepalive has to tell
  void PassDeadline(Request& request);
  // Takes every block that can be had from both pools of the hand-off, and gives them back later.
  void FillPools(Request& request, absl::Duration until);
  void HogPrefill(absl::Duration until);

  // The hand-off's wire that is or was the newest.
  PrefillWire* handoff() { return handoff_.get(); }
  std::vector<std::shared_ptr<WireBase>>& wires() { return wires_; }
  // Chunks of an ended hand-off arrive in the next one on that decode worker.
  void ReplayLate(std::vector<fleet::v1::KvChunk> chunks) { late_ = std::move(chunks); }
  // All that arrived so far.
  const std::vector<fleet::v1::KvChunk>& chunks() const { return chunks_; }
  int chunks_taken() const { return static_cast<int>(chunks_.size()); }
  bool request_reached_prefill() const { return reached_prefill_; }

  // The worker holds the full blocks of the prompt from now on.
  static void Warm(PrefillNode& node, const std::vector<TokenId>& prompt);
  // The fetch's wire that is or was the newest, and the events that its caller took.
  FetchWire* fetch() { return fetch_.get(); }
  int fetch_events() const { return fetch_events_; }

  // Resources that running workers still hold; empty if there are none.
  std::string Leftovers();

  PrefillNode prefill[2];
  DecodeNode decode[2];
  Node router, client;

 private:
  friend class RigFetchClient;
  friend class RigPrefillClient;
  void Boot(PrefillNode& node);
  void Boot(DecodeNode& node);
  Incarnation IncarnationOf(const DecodeNode& node) const;
  void Place(Request& request);
  void Dial(Request& request, router::Dial dial);
  void Perform(Request& request, router::Actions actions);
  void After(absl::Duration delay, std::function<void()> work);
  static void Empty(engine::Engine& engine);
  // A flow that nobody listens to any more comes to its end.
  static void Abandon(Request& request);

  const Without without_;
  const absl::Duration write_takes_;
  const Fetches fetches_;
  const bool progress_;
  const absl::Duration turn_;
  FakeClock clock_;
  telemetry::Metrics metrics_;
  const router::ServedModel model_{.name = "model"};
  router::Probe probe_{metrics_};
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::multimap<absl::Time, std::function<void()>> later_;
  std::vector<std::shared_ptr<WireBase>> wires_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::shared_ptr<PrefillWire> handoff_;
  std::shared_ptr<FetchWire> fetch_;
  int fetch_events_ = 0;
  std::vector<fleet::v1::KvChunk> late_, chunks_;
  bool reached_prefill_ = false;
  uint64_t next_id_ = 1;
};

}  // namespace baton::fault
