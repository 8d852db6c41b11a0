#include "lab/simulate/simulation.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace baton::lab::simulate {
namespace {

using router::admission::EntryId;
using router::placement::Booked;

// A worker tells the quickest of so many steps that it measures at its start.
constexpr int kMeasureRounds = 8;
constexpr int64_t kUnlimited = int64_t{1} << 40;

router::index::PrefixIndex::Options IndexOptions() {
  return {.max_bytes = int64_t{4} << 30, .max_speculative = int64_t{1} << 20};
}

// Link domains of the prefill workers, then of the decode workers.
std::vector<int> Domains(const FleetModel& model) {
  std::vector<int> domains;
  for (const int workers : {model.prefill_workers, model.decode_workers}) {
    for (int i = 0; i < workers; ++i) domains.push_back(model.Domain(i));
  }
  return domains;
}

int64_t MissingBytes(const FleetModel& model, const RequestRecord& record) {
  const int64_t held = record.decode_matched * model.block_tokens;
  return std::max<int64_t>(0, record.request->prompt_tokens - held) * model.kv_bytes_per_token;
}

}  // namespace

Simulation::Simulation(const FleetModel& model, const PolicyUnderTest& under_test,
                       const std::vector<Request>& load, uint64_t seed)
    : model_(model),
      under_test_(under_test),
      load_(load),
      links_(Domains(model), model.link_bandwidth, model.near_bandwidth, model.link_latency),
      index_(IndexOptions()),
      core_(under_test.policy(seed),
            under_test.default_ttft > 0 ? absl::Seconds(under_test.default_ttft) : absl::InfiniteDuration(),
            &index_),
      admission_({.entries = kUnlimited, .tokens = kUnlimited, .bytes = kUnlimited}) {
  int64_t all_blocks = 1;
  for (const Request& request : load_) all_blocks += std::ssize(request.chain) + 1;
  prefill_states_.resize(model_.prefill_workers);
  booked_.resize(model_.prefill_workers);
  for (int i = 0; i < model_.prefill_workers; ++i) {
    if (!under_test_.shared_cache)
      pools_.push_back(std::make_unique<kv::BlockPool>(model_.prefill_blocks, under_test_.eviction));
    if (pools_.empty()) pools_.push_back(std::make_unique<kv::BlockPool>(all_blocks));
    disks_.push_back(std::make_unique<Disk>(model_, under_test_.shared_cache ? 0 : model_.disk_blocks(),
                                            events_, *pools_.back()));
    prefill_.push_back(std::make_unique<PrefillWorker>(
        model_,
        PrefillWorker::Setup{.number = i,
                             .discipline = under_test_.discipline,
                             .targets = under_test_.targets,
                             .began =
                                 [this](RequestRecord& record) {
                                   record.arrives = links_.Send(
                                       events_.now(), record.prefill,
                                       static_cast<size_t>(model_.prefill_workers + record.decode),
                                       MissingBytes(model_, record));
                                 },
                             .done = [this](RequestRecord& record) { Computed(record); },
                             .seed = seed + static_cast<uint64_t>(i) + 0x3000},
        events_, links_, *pools_.back(), *disks_.back()));
    prefill_states_[i].slot = *index_.Join();
    Introduce(prefill_states_[i].slot, seed + static_cast<uint64_t>(i) + 0x2000, model_.Slowness(i));
    prefill_states_[i].key = static_cast<uint64_t>(i) + 1;
    if (under_test_.tells_links) prefill_states_[i].link_domain = static_cast<uint64_t>(model_.Domain(i));
    JoinDisk(prefill_states_[i]);
    prefill_states_[i].can_fetch = prefill_states_[i].serves_fetches = under_test_.fetch != Fetch::kNever;
  }
  decode_states_.resize(model_.decode_workers);
  transfers_.resize(model_.decode_workers);
  peer_costs_.resize(model_.decode_workers);
  for (int i = 0; i < model_.decode_workers; ++i) {
    decode_.push_back(std::make_unique<DecodeWorker>(
        model_,
        DecodeWorker::Setup{.slo_tpot = under_test_.slo_tpot,
                            .prefilled =
                                [this](RequestRecord& record) {
                                  record.computed = events_.now();
                                  Tell(*decode_[record.decode], decode_states_[record.decode]);
                                  FirstToken(record);
                                },
                            .finished = [this](RequestRecord& record) { Finished(record); },
                            .seed = seed + static_cast<uint64_t>(i) + 1},
        events_));
    decode_states_[i].slot = *index_.Join();
    Introduce(decode_states_[i].slot, seed + static_cast<uint64_t>(i) + 0x1000);
    if (under_test_.tells_links) decode_states_[i].link_domain = static_cast<uint64_t>(model_.Domain(i));
    JoinDisk(decode_states_[i]);
    decode_states_[i].serves_fetches = under_test_.fetch == Fetch::kFromAll;
    decode_states_[i].chunk_tokens = std::min(model_.local_chunk_tokens, model_.local_token_budget);
  }
  records_.resize(load_.size());
}

RunResult Simulation::Run(const std::function<void(int64_t)>& progress) {
  for (size_t i = 0; i < load_.size(); ++i) {
    records_[i].id = i;
    records_[i].request = &load_[i];
  }
  if (!load_.empty()) events_.At(load_[0].arrival + model_.request_overhead, [this] { Arrive(0); });
  constexpr int64_t kTellEvery = 1024;
  int64_t told = 0;
  while (events_.Step()) {
    if (ended_ - told >= kTellEvery) progress(told = ended_);
  }
  progress(ended_);
  BATON_CHECK_EQ(ended_, std::ssize(records_)) << "some requests never ended";
  RunResult run;
  for (const auto& worker : prefill_) {
    run.prefill_busy.push_back(worker->busy_seconds());
    run.prefill_served.push_back(worker->served());
  }
  if (!load_.empty()) run.seconds = load_.back().arrival - load_.front().arrival;
  run.records = std::move(records_);
  return run;
}

void Simulation::Arrive(size_t at) {
  RequestRecord& record = records_[at];
  if (at + 1 < load_.size()) {
    events_.At(load_[at + 1].arrival + model_.request_overhead, [this, at] { Arrive(at + 1); });
  }
  const bool fits = std::ssize(record.request->chain) < model_.prefill_blocks &&
                    (record.request->prompt_tokens + record.request->output_tokens) / model_.block_tokens <
                        model_.decode_blocks;
  if (!fits) {
    record.too_long = true;
    Refuse(record);
    return;
  }
  const auto decided =
      admission_.Admit(Asked(record), {.due = core_.deadlines().Due(absl::InfiniteFuture(), Now())},
                       absl::InfiniteDuration(), Now());
  if (std::holds_alternative<router::admission::Refusal>(decided)) {
    Refuse(record);
    return;
  }
  record.account = std::get<router::admission::AdmissionController::Admitted>(decided).entries.front();
  entries_.emplace(*record.account, &record);
  Pump();
}

void Simulation::Refuse(RequestRecord& record) {
  record.refused = true;
  ++ended_;
  if (record.account.has_value()) admission_.Settle(*record.account, {.requests = 1}, Now());
}

void Simulation::Pump() {
  index_.Maintain(Now());
  for (const EntryId id : admission_.TakeExpired(Now())) {
    RequestRecord* const late = entries_.at(id);
    entries_.erase(id);
    Refuse(*late);
  }
  while (const auto id = admission_.First()) {
    if (!core_.deadlines().MayDispatchUntried(unanswered_, model_.decode_workers)) return;
    RequestRecord& record = *entries_.at(*id);
    const Placing placing = Place(record);
    if (placing == Placing::kNoRoom) return;  // in order: no request is passed over for lack of room
    entries_.erase(*id);
    if (placing == Placing::kTooLate) {
      admission_.Withdraw(*id, Now());
      Refuse(record);
    } else {
      admission_.Serve(*id, Now());
    }
  }
}

// Fills in what the router knows of the workers, for this request.
void Simulation::Look(const RequestRecord& record) {
  const Request& request = *record.request;
  open_prefill_.clear();
  open_prefill_numbers_.clear();
  for (int i = 0; i < model_.prefill_workers; ++i) {
    if (model_.JoinsAt(i) > events_.now()) continue;
    WorkerState state = prefill_states_[i];
    state.booked = booked_[i];
    state.waiting = std::ssize(booked_[i]);
    const kv::BlockPool::Counts counts = prefill_[i]->pool().counts();
    state.free_blocks = counts.free;
    state.cached_blocks = counts.cached;
    state.leased_blocks = counts.leased;
    state.total_blocks = counts.total;
    open_prefill_.push_back(state);
    open_prefill_numbers_.push_back(i);
  }
  open_decode_.clear();
  open_decode_numbers_.clear();
  for (int i = 0; i < model_.decode_workers; ++i) {
    const int64_t requests = decode_states_[i].running;
    if (requests >= model_.decode_concurrency || !decode_[i]->HasRoom(request)) continue;
    if (under_test_.in_time &&
        !core_.batch_bound().Allows(decode_[i]->AnswersInTime(), decode_[i]->running(), requests)) {
      continue;
    }
    WorkerState state = decode_states_[i];
    state.queued_tokens = decode_[i]->waiting_local_tokens();
    state.peer_costs = peer_costs_[i];
    const kv::BlockPool::Counts counts = decode_[i]->pool().counts();
    state.free_blocks = counts.free;
    state.cached_blocks = counts.cached;
    state.leased_blocks = counts.leased;
    state.total_blocks = counts.total;
    open_decode_.push_back(state);
    open_decode_numbers_.push_back(i);
  }
  core_.Match(request.chain, open_decode_, open_prefill_);
  if (!under_test_.shared_cache) return;
  const int64_t shared = pools_[0]->MatchPrefix(request.chain);
  for (WorkerState& state : open_prefill_) state.matched_blocks = shared;
}

router::Request Simulation::Asked(const RequestRecord& record) const {
  return {.prompt_tokens = record.request->prompt_tokens,
          .max_tokens = record.request->output_tokens,
          .arrival = absl::UnixEpoch() + absl::Seconds(record.request->arrival),
          .block_tokens = model_.block_tokens};
}

Simulation::Placing Simulation::Place(RequestRecord& record) {
  const Request& request = *record.request;
  Look(record);
  if (open_decode_.empty()) return Placing::kNoRoom;
  const router::Request asked = Asked(record);
  record.selection = core_.Select(asked, {.decode = open_decode_, .prefill = open_prefill_, .now = Now()});
  const bool busy = std::any_of(decode_states_.begin(), decode_states_.end(),
                                [](const WorkerState& state) { return state.running > 0; });
  const router::admission::FirstToken first = core_.Estimate(asked, record.selection.predicted);
  if (router::DispatchCore::TooLate(first, Now(), busy)) return Placing::kTooLate;
  ++unanswered_;
  record.placed = events_.now();
  record.decode = open_decode_numbers_[record.selection.decode];
  record.prefill =
      record.selection.prefill.empty() ? -1 : open_prefill_numbers_[record.selection.prefill.front()];
  Book(record);
  core_.Expect(record.selection, request.chain, Now());
  // One cache that forgets nothing and knows of each prompt at once.
  if (under_test_.shared_cache) {
    kv::BlockPool& pool = *pools_[0];
    std::vector<BlockId> blocks = pool.AcquirePrefix(request.chain);
    record.known_blocks = std::ssize(blocks);
    auto rest = pool.Allocate(std::ssize(request.chain) - record.known_blocks);
    BATON_CHECK(rest.ok());
    blocks.insert(blocks.end(), rest->begin(), rest->end());
    for (size_t i = 0; i < blocks.size(); ++i) pool.Publish(blocks[i], request.chain[i]);
    pool.Release(blocks);
  }
  DecodeWorker& decode = *decode_[record.decode];
  decode.Reserve(record);
  Tell(decode, decode_states_[record.decode]);
  if (record.prefill < 0) {
    decode.PrefillLocally(record);
    return Placing::kPlaced;
  }
  prefill_[record.prefill]->Submit(record, FetchFrom(record));
  return Placing::kPlaced;
}

// Where the chosen prefill worker is to fetch the prefix from.
std::optional<PrefillWorker::Peer> Simulation::FetchFrom(const RequestRecord& record) {
  if (under_test_.fetch == Fetch::kNever || !record.selection.fetch_from.has_value()) return std::nullopt;
  const router::WorkerSlot slot = *record.selection.fetch_from;
  for (size_t i = 0; i < prefill_.size(); ++i) {
    if (prefill_states_[i].slot == slot) return PrefillWorker::Peer{.pool = &prefill_[i]->pool(), .port = i};
  }
  for (size_t i = 0; i < decode_.size(); ++i) {
    if (decode_states_[i].slot != slot) continue;
    return PrefillWorker::Peer{.pool = &decode_[i]->pool(), .port = prefill_.size() + i};
  }
  return std::nullopt;
}

void Simulation::Book(RequestRecord& record) {
  const Request& request = *record.request;
  WorkerState& decode = decode_states_[record.decode];
  ++decode.running;
  decode.context_tokens += request.prompt_tokens;
  if (record.prefill < 0) return;
  WorkerState& prefill = prefill_states_[record.prefill];
  if (booked_[record.prefill].empty()) prefill.busy_since = Now();
  prefill.queued_tokens += record.selection.uncached_tokens;
  booked_[record.prefill].push_back({.due = record.selection.due,
                                     .tokens = record.selection.uncached_tokens,
                                     .cached = record.selection.cached_tokens,
                                     .since = Now(),
                                     .request = record.id});
}

void Simulation::Unbook(const RequestRecord& record) {
  if (record.prefill < 0) return;
  WorkerState& prefill = prefill_states_[record.prefill];
  prefill.busy_since = Now();
  prefill.queued_tokens -= record.selection.uncached_tokens;
  auto& booked = booked_[record.prefill];
  const auto found = std::find_if(booked.begin(), booked.end(),
                                  [&](const Booked& entry) { return entry.request == record.id; });
  BATON_CHECK(found != booked.end());
  *found = booked.back();
  booked.pop_back();
}

// The prefill worker is done; the first token leaves when the KV is over there.
void Simulation::Computed(RequestRecord& record) {
  router::placement::Outcome outcome;
  outcome.prefill = prefill_states_[record.prefill].slot;
  outcome.decode = decode_states_[record.decode].slot;
  outcome.uncached_tokens = record.request->prompt_tokens - record.cached_tokens;
  outcome.cached_tokens = record.cached_tokens;
  outcome.wait_seconds = record.began - record.placed;
  outcome.compute_seconds = record.computed - record.began;
  const double arrives = std::max(record.arrives, record.computed + model_.link_latency);
  outcome.ship_seconds = arrives - record.computed;
  Learn(record, arrives);
  core_.policy().Observe(outcome);
  Tell(record.prefill);
  events_.At(arrives, [this, &record] {
    FirstToken(record);
    decode_[record.decode]->Join(record);
    Tell(*decode_[record.decode], decode_states_[record.decode]);
  });
}

void Simulation::Learn(const RequestRecord& record, double arrives) {
  if (model_.link_domains == 0 || !under_test_.tells_links) return;
  forecast::TransferForecast& transfers = transfers_[record.decode];
  transfers.Observe(std::to_string(record.prefill), MissingBytes(model_, record), arrives - record.computed);
  const auto news = transfers.TakeNews();
  if (!news.has_value()) return;
  auto& costs = peer_costs_[record.decode];
  costs.clear();
  for (const auto& rate : *news) {
    costs.push_back({.peer = prefill_states_[std::stoul(rate.peer)].key,
                     .base = rate.base,
                     .token = static_cast<double>(model_.kv_bytes_per_token) / rate.bytes_per_second});
  }
  std::sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.peer < b.peer; });
}

void Simulation::FirstToken(RequestRecord& record) {
  record.first_token = events_.now();
  Unbook(record);
  --unanswered_;
  const bool may_wait = !core_.deadlines().trusted();
  core_.deadlines().Observe(record.selection.predicted.ttft(), record.first_token - record.placed,
                            record.selection.trusted);
  core_.batch_bound().ObserveFirstToken(record.first_token - record.placed);
  if (may_wait) Pump();
}

void Simulation::Finished(RequestRecord& record) {
  WorkerState& decode = decode_states_[record.decode];
  --decode.running;
  decode.context_tokens -= record.request->prompt_tokens;
  Tell(*decode_[record.decode], decode);
  router::placement::Outcome outcome;
  outcome.prefill = outcome.decode = decode.slot;
  outcome.output_tokens = record.request->output_tokens;
  if (const auto steps = decode_[record.decode]->totals().MeansSince(record.totals); steps.has_value()) {
    outcome.step_seconds = steps->seconds;
    outcome.batch = steps->answers;
    outcome.context_tokens = steps->context;
  }
  core_.policy().Observe(outcome);
  core_.batch_bound().ObserveAnswer(record.end - record.first_token);
  ++ended_;
  admission_.Settle(*record.account,
                    {.requests = 1,
                     .prompt_tokens = record.request->prompt_tokens,
                     .output_tokens = record.request->output_tokens},
                    Now());
  if (!admission_.queue().empty()) Pump();
}

// A worker measures itself at its start, and tells it.
void Simulation::Introduce(router::WorkerSlot slot, uint64_t seed, double slowness) {
  if (model_.measured <= 0) return;
  Variation variation(model_, seed);
  double quickest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kMeasureRounds; ++round) quickest = std::min(quickest, variation.Factor());
  const double times = model_.measured * slowness * quickest;
  core_.policy().Introduce(slot, {.base = times * model_.step_base,
                                  .sequence = times * model_.step_sequence,
                                  .context = times * model_.step_context,
                                  .token = times * model_.prefill_token,
                                  .pair = times * model_.prefill_pair});
}

void Simulation::JoinDisk(WorkerState& state) {
  if (model_.disk_blocks() == 0 || under_test_.shared_cache) return;
  state.disk_slot = *index_.Join();
  state.disk_cost = {.base = model_.disk_latency,
                     .token = static_cast<double>(model_.kv_bytes_per_token) / model_.disk_bandwidth};
}

// The worker's event stream.
void Simulation::Tell(int worker) {
  if (!under_test_.shared_cache) Tell(prefill_[worker]->pool(), *disks_[worker], prefill_states_[worker]);
}

void Simulation::Tell(DecodeWorker& worker, const WorkerState& state) {
  if (model_.decode_cache) Tell(worker.pool(), worker.disk(), state);
}

void Simulation::Tell(kv::BlockPool& pool, Disk& disk, const WorkerState& state) {
  disk.WriteBehind();
  const auto tell = [this](const kv::BlockPool::Changes& changes, router::WorkerSlot slot) {
    index_.Evict(slot, changes.evicted);
    index_.Store(slot, changes.stored);
  };
  tell(pool.TakeChanges(), state.slot);
  if (state.disk_slot.has_value()) tell(disk.TakeChanges(), *state.disk_slot);
}

}  // namespace baton::lab::simulate
