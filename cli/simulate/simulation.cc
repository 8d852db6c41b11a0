#include "cli/simulate/simulation.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::cli::simulate {
namespace {

using router::admission::EntryId;
using router::placement::Booked;

// How long the router believes in blocks that it sent a request for.
constexpr absl::Duration kBelief = absl::Seconds(120);
// Decode steps between two observations of one.
constexpr int64_t kObserveEvery = 16;
constexpr int64_t kUnlimited = int64_t{1} << 40;

router::index::PrefixIndex::Options IndexOptions() {
  return {.max_bytes = int64_t{4} << 30, .max_speculative = int64_t{1} << 20};
}

}  // namespace

Simulation::Simulation(const FleetModel& model, const Contender& contender, const std::vector<Request>& load,
                       uint64_t seed)
    : model_(model),
      contender_(contender),
      load_(load),
      links_(model.prefill_workers + model.decode_workers, model.link_bandwidth, model.link_latency),
      policy_(contender.policy(seed)),
      admission_({.entries = kUnlimited, .tokens = kUnlimited, .bytes = kUnlimited}),
      foresight_(contender.default_ttft > 0 ? absl::Seconds(contender.default_ttft)
                                            : absl::InfiniteDuration()),
      index_(IndexOptions()),
      confirmed_(IndexOptions()) {
  int64_t all_blocks = 1;
  for (const Request& request : load_) all_blocks += std::ssize(request.chain) + 1;
  prefill_states_.resize(model_.prefill_workers);
  booked_.resize(model_.prefill_workers);
  for (int i = 0; i < model_.prefill_workers; ++i) {
    if (!contender_.shared_cache)
      pools_.push_back(std::make_unique<kv::BlockPool>(model_.prefill_blocks, contender_.eviction));
    if (pools_.empty()) pools_.push_back(std::make_unique<kv::BlockPool>(all_blocks));
    prefill_.push_back(std::make_unique<PrefillWorker>(
        model_,
        PrefillWorker::Setup{
            .number = i,
            .discipline = contender_.discipline,
            .targets = contender_.targets,
            .began =
                [this](Ticket& ticket) {
                  const int64_t missing = std::max<int64_t>(
                      0, ticket.request->prompt_tokens - ticket.decode_matched * model_.block_tokens);
                  ticket.arrives = links_.Send(events_.now(), ticket.prefill,
                                               static_cast<size_t>(model_.prefill_workers + ticket.decode),
                                               missing * model_.kv_bytes_per_token);
                },
            .done = [this](Ticket& ticket) { Computed(ticket); }},
        events_, links_, *pools_.back()));
    prefill_states_[i].slot = *index_.Join();
    BATON_CHECK(*confirmed_.Join() == prefill_states_[i].slot);
    prefill_states_[i].can_fetch = contender_.fetch != Fetch::kNever;
  }
  decode_states_.resize(model_.decode_workers);
  for (int i = 0; i < model_.decode_workers; ++i) {
    decode_.push_back(std::make_unique<DecodeWorker>(
        model_,
        DecodeWorker::Setup{.slo_tpot = contender_.slo_tpot,
                            .prefilled =
                                [this](Ticket& ticket) {
                                  ticket.computed = events_.now();
                                  FirstToken(ticket);
                                },
                            .finished = [this](Ticket& ticket) { Finished(ticket); },
                            .stepped =
                                [this, i](double seconds, int64_t batch, int64_t context) {
                                  if (++steps_ % kObserveEvery != 0) return;
                                  router::placement::Outcome outcome;
                                  outcome.prefill = outcome.decode = decode_states_[i].slot;
                                  outcome.step_seconds = seconds;
                                  outcome.batch = batch;
                                  outcome.context_tokens = context;
                                  policy_->Observe(outcome);
                                }},
        events_));
    decode_states_[i].slot = *index_.Join();
    BATON_CHECK(*confirmed_.Join() == decode_states_[i].slot);
  }
  tickets_.resize(load_.size());
}

Played Simulation::Play(const std::function<void(int64_t)>& progress) {
  for (size_t i = 0; i < load_.size(); ++i) {
    tickets_[i].id = i;
    tickets_[i].request = &load_[i];
  }
  if (!load_.empty()) events_.At(load_[0].arrival + model_.request_overhead, [this] { Arrive(0); });
  constexpr int64_t kTellEvery = 1024;
  int64_t told = 0;
  while (events_.Step()) {
    if (ended_ - told >= kTellEvery) progress(told = ended_);
  }
  progress(ended_);
  BATON_CHECK_EQ(ended_, std::ssize(tickets_)) << "some requests never ended";
  Played run;
  for (const auto& worker : prefill_) {
    run.prefill_busy.push_back(worker->busy_seconds());
    run.prefill_served.push_back(worker->served());
  }
  if (!load_.empty()) run.seconds = load_.back().arrival - load_.front().arrival;
  run.tickets = std::move(tickets_);
  return run;
}

void Simulation::Arrive(size_t at) {
  Ticket& ticket = tickets_[at];
  if (at + 1 < load_.size()) {
    events_.At(load_[at + 1].arrival + model_.request_overhead, [this, at] { Arrive(at + 1); });
  }
  const bool fits = std::ssize(ticket.request->chain) < model_.prefill_blocks &&
                    (ticket.request->prompt_tokens + ticket.request->output_tokens) / model_.block_tokens <
                        model_.decode_blocks;
  if (!fits) {
    ticket.too_long = true;
    Refuse(ticket);
    return;
  }
  const auto decided = admission_.Admit({.prompt_tokens = ticket.request->prompt_tokens,
                                         .max_tokens = ticket.request->output_tokens,
                                         .deadline = foresight_.Due(absl::InfiniteFuture(), Now()),
                                         .clients_deadline = false},
                                        Now());
  if (std::holds_alternative<router::admission::Refusal>(decided)) {
    Refuse(ticket);
    return;
  }
  ticket.account = std::get<router::admission::AdmissionController::Admitted>(decided).entries.front();
  entries_.emplace(*ticket.account, &ticket);
  Pump();
}

void Simulation::Refuse(Ticket& ticket) {
  ticket.refused = true;
  ++ended_;
  if (ticket.account.has_value()) admission_.Settle(*ticket.account, {.requests = 1}, Now());
}

void Simulation::Pump() {
  index_.Maintain(Now());
  for (const EntryId id : admission_.TakeExpired(Now())) {
    Ticket* const late = entries_.at(id);
    entries_.erase(id);
    Refuse(*late);
  }
  while (const auto id = admission_.First()) {
    if (!foresight_.MayTry(unanswered_, model_.decode_workers)) return;
    Ticket& ticket = *entries_.at(*id);
    const Placing placing = Place(ticket);
    if (placing == Placing::kNoRoom) return;  // in order: nobody is passed for want of room
    entries_.erase(*id);
    if (placing == Placing::kTooLate) {
      admission_.Withdraw(*id, Now());
      Refuse(ticket);
    } else {
      admission_.Serve(*id, Now());
    }
  }
}

// Fills in what the router knows of the workers, for this request.
void Simulation::Look(const Ticket& ticket) {
  const Request& request = *ticket.request;
  index_.Match(request.chain, &matches_);
  if (contender_.fetch != Fetch::kNever) confirmed_.Match(request.chain, &confirmed_matches_);
  const int64_t shared = contender_.shared_cache ? pools_[0]->MatchPrefix(request.chain) : 0;
  open_prefill_.clear();
  open_prefill_numbers_.clear();
  for (int i = 0; i < model_.prefill_workers; ++i) {
    if (model_.JoinsAt(i) > events_.now()) continue;
    WorkerState state = prefill_states_[i];
    state.matched_blocks = contender_.shared_cache ? shared : matches_.of(state.slot);
    state.confirmed_blocks = contender_.fetch != Fetch::kNever ? confirmed_matches_.of(state.slot) : 0;
    state.booked = booked_[i];
    state.waiting = std::ssize(booked_[i]);
    const kv::BlockPool::Counts counts = prefill_[i]->pool().counts();
    state.free_blocks = counts.free;
    state.cached_blocks = counts.cached;
    state.total_blocks = counts.total;
    open_prefill_.push_back(state);
    open_prefill_numbers_.push_back(i);
  }
  open_decode_.clear();
  open_decode_numbers_.clear();
  for (int i = 0; i < model_.decode_workers; ++i) {
    if (decode_states_[i].running >= model_.decode_concurrency || !decode_[i]->HasRoom(request)) continue;
    WorkerState state = decode_states_[i];
    state.matched_blocks = matches_.of(state.slot);
    state.confirmed_blocks = contender_.fetch == Fetch::kFromAll ? confirmed_matches_.of(state.slot) : 0;
    state.queued_tokens = decode_[i]->waiting_local_tokens();
    const kv::BlockPool::Counts counts = decode_[i]->pool().counts();
    state.free_blocks = counts.free;
    state.cached_blocks = counts.cached;
    state.total_blocks = counts.total;
    open_decode_.push_back(state);
    open_decode_numbers_.push_back(i);
  }
}

Simulation::Placing Simulation::Place(Ticket& ticket) {
  const Request& request = *ticket.request;
  Look(ticket);
  if (open_decode_.empty()) return Placing::kNoRoom;
  const absl::Time arrival = absl::UnixEpoch() + absl::Seconds(request.arrival);
  ticket.choice = policy_->Choose({.prompt_tokens = request.prompt_tokens,
                                   .max_tokens = request.output_tokens,
                                   .arrival = arrival,
                                   .now = Now(),
                                   .block_tokens = model_.block_tokens},
                                  open_decode_, open_prefill_);
  // As the dispatcher judges a placement.
  const router::placement::Prediction& predicted = ticket.choice.predicted;
  const absl::Time due =
      foresight_.Due(absl::InfiniteFuture(), arrival, foresight_.Cautious(predicted.ttft() - predicted.wait));
  const bool busy = std::any_of(decode_states_.begin(), decode_states_.end(),
                                [](const WorkerState& state) { return state.running > 0; });
  if (foresight_.trusted() && busy && Now() + foresight_.Cautious(predicted.ttft()) > due) {
    return Placing::kTooLate;
  }
  ++unanswered_;
  ticket.placed = events_.now();
  ticket.trusted = foresight_.trusted();
  ticket.decode = open_decode_numbers_[ticket.choice.decode];
  ticket.prefill = ticket.choice.prefill.empty() ? -1 : open_prefill_numbers_[ticket.choice.prefill.front()];
  Book(ticket);
  // One cache that forgets nothing and knows of each prompt at once.
  if (contender_.shared_cache) {
    kv::BlockPool& pool = *pools_[0];
    std::vector<BlockId> blocks = pool.AcquirePrefix(request.chain);
    ticket.known_blocks = std::ssize(blocks);
    auto rest = pool.Allocate(std::ssize(request.chain) - ticket.known_blocks);
    BATON_CHECK(rest.ok());
    blocks.insert(blocks.end(), rest->begin(), rest->end());
    for (size_t i = 0; i < blocks.size(); ++i) pool.Publish(blocks[i], request.chain[i]);
    pool.Release(blocks);
  }
  DecodeWorker& decode = *decode_[ticket.decode];
  decode.Reserve(ticket);
  Tell(decode, decode_states_[ticket.decode].slot);
  if (ticket.prefill < 0) {
    decode.PrefillLocally(ticket);
    return Placing::kPlaced;
  }
  prefill_[ticket.prefill]->Submit(ticket, FetchFrom(ticket));
  return Placing::kPlaced;
}

// Where the chosen prefill worker is to fetch the prefix from.
std::optional<PrefillWorker::Peer> Simulation::FetchFrom(const Ticket& ticket) {
  if (contender_.fetch == Fetch::kNever || !ticket.choice.fetch_from.has_value()) return std::nullopt;
  const router::WorkerSlot slot = *ticket.choice.fetch_from;
  for (size_t i = 0; i < prefill_.size(); ++i) {
    if (prefill_states_[i].slot == slot) return PrefillWorker::Peer{.pool = &prefill_[i]->pool(), .port = i};
  }
  for (size_t i = 0; i < decode_.size(); ++i) {
    if (decode_states_[i].slot != slot) continue;
    return PrefillWorker::Peer{.pool = &decode_[i]->pool(), .port = prefill_.size() + i};
  }
  return std::nullopt;
}

void Simulation::Book(Ticket& ticket) {
  const Request& request = *ticket.request;
  WorkerState& decode = decode_states_[ticket.decode];
  ++decode.running;
  decode.context_tokens += request.prompt_tokens;
  if (ticket.prefill < 0) return;
  WorkerState& prefill = prefill_states_[ticket.prefill];
  if (booked_[ticket.prefill].empty()) prefill.busy_since = Now();
  prefill.queued_tokens += ticket.choice.uncached_tokens;
  booked_[ticket.prefill].push_back({.due = ticket.choice.due,
                                     .tokens = ticket.choice.uncached_tokens,
                                     .cached = request.prompt_tokens - ticket.choice.uncached_tokens,
                                     .since = Now(),
                                     .request = ticket.id});
  if (!contender_.shared_cache) index_.Speculate(prefill.slot, request.chain, Now() + kBelief);
}

void Simulation::Unbook(const Ticket& ticket) {
  if (ticket.prefill < 0) return;
  WorkerState& prefill = prefill_states_[ticket.prefill];
  prefill.busy_since = Now();
  prefill.queued_tokens -= ticket.choice.uncached_tokens;
  auto& booked = booked_[ticket.prefill];
  const auto found = std::find_if(booked.begin(), booked.end(),
                                  [&](const Booked& entry) { return entry.request == ticket.id; });
  BATON_CHECK(found != booked.end());
  *found = booked.back();
  booked.pop_back();
}

// The prefill worker is done; the first token leaves when the KV is over there.
void Simulation::Computed(Ticket& ticket) {
  router::placement::Outcome outcome;
  outcome.prefill = prefill_states_[ticket.prefill].slot;
  outcome.decode = decode_states_[ticket.decode].slot;
  outcome.uncached_tokens = ticket.request->prompt_tokens - ticket.cached_tokens;
  outcome.cached_tokens = ticket.cached_tokens;
  outcome.wait_seconds = ticket.began - ticket.placed;
  outcome.compute_seconds = ticket.computed - ticket.began;
  const double arrives = std::max(ticket.arrives, ticket.computed + model_.link_latency);
  outcome.ship_seconds = arrives - ticket.computed;
  policy_->Observe(outcome);
  Tell(ticket.prefill);
  events_.At(arrives, [this, &ticket] {
    FirstToken(ticket);
    decode_[ticket.decode]->Join(ticket);
    Tell(*decode_[ticket.decode], decode_states_[ticket.decode].slot);
  });
}

void Simulation::FirstToken(Ticket& ticket) {
  ticket.first_token = events_.now();
  Unbook(ticket);
  --unanswered_;
  const bool may_wait = !foresight_.trusted();
  foresight_.Observe(ticket.choice.predicted.ttft(), ticket.first_token - ticket.placed, ticket.trusted);
  if (may_wait) Pump();
}

void Simulation::Finished(Ticket& ticket) {
  WorkerState& decode = decode_states_[ticket.decode];
  --decode.running;
  decode.context_tokens -= ticket.request->prompt_tokens;
  Tell(*decode_[ticket.decode], decode.slot);
  router::placement::Outcome outcome;
  outcome.prefill = outcome.decode = decode.slot;
  outcome.output_tokens = ticket.request->output_tokens;
  policy_->Observe(outcome);
  ++ended_;
  admission_.Settle(*ticket.account,
                    {.requests = 1,
                     .prompt_tokens = ticket.request->prompt_tokens,
                     .output_tokens = ticket.request->output_tokens},
                    Now());
  if (!admission_.queue().empty()) Pump();
}

// The worker's event stream.
void Simulation::Tell(int worker) {
  if (!contender_.shared_cache) Tell(prefill_[worker]->pool(), prefill_states_[worker].slot);
}

void Simulation::Tell(DecodeWorker& worker, router::WorkerSlot slot) {
  if (model_.decode_cache) Tell(worker.pool(), slot);
}

void Simulation::Tell(kv::BlockPool& pool, router::WorkerSlot slot) {
  const kv::BlockPool::Changes changes = pool.TakeChanges();
  index_.Evict(slot, changes.evicted);
  index_.Store(slot, changes.stored);
  if (contender_.fetch == Fetch::kNever) return;
  confirmed_.Evict(slot, changes.evicted);
  confirmed_.Store(slot, changes.stored);
}

}  // namespace baton::cli::simulate
