#include "router/placement/prefix_affinity.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <tuple>

#include "router/placement/tie.h"

namespace baton::router::placement {
namespace {

// Cost of decode steps, until one has been seen.
constexpr Weights kStepPrior = {10e-3, 50e-6, 50e-9};

constexpr double kNoise = 0.01;
constexpr double kNoiseSeconds = 1e-3;

// The tokens of the prompt, or of the context of one answer, at which measurements are compared.
constexpr int64_t kPrompt = 1024;

// Seconds of a prompt of kPrompt tokens, and of a step of one answer behind it, as a worker measured them at
// its start.
double MeasuredPrefill(const forecast::StepCost& cost) { return cost.prefill().Seconds(kPrompt, 0); }
double MeasuredStep(const forecast::StepCost& cost) {
  return cost.base + cost.sequence + cost.context * kPrompt;
}

// Beyond any context there is.
constexpr int64_t kMaxTokens = int64_t{1} << 32;

// Rows of a prompt in one step of a decode worker that does not say: the workers' default.
constexpr int64_t kDefaultLocalChunk = 256;

int64_t Reused(const Request& request, int64_t blocks) {
  // Counts come from other processes: no multiplication before they are known to be small.
  blocks = std::clamp<int64_t>(blocks, 0, request.prompt_tokens / request.block_tokens);
  return std::min(blocks * request.block_tokens, request.prompt_tokens - 1);
}

// Returns whether the worker's own rule has the prompt computed there; absent: it has none. What others hold,
// or its disk beyond its memory, counts as cached only once it is brought.
std::optional<bool> RuleSaysLocal(const Request& request, const WorkerState& decoder) {
  if (!decoder.local_prefill_tokens.has_value()) return std::nullopt;
  const int64_t rest = request.prompt_tokens - Reused(request, decoder.confirmed_blocks);
  return rest <= *decoder.local_prefill_tokens;
}

// Seconds to load the prefix that its disk has beyond `here` tokens; 0 if there is none.
double LoadSeconds(const WorkerState& worker, int64_t here, int64_t there) {
  if (there <= here) return 0;
  return worker.disk_cost.base + worker.disk_cost.token * static_cast<double>(there - here);
}

// `cached`: tokens that the worker which computes the prompt is predicted to use, without a fetch.
// `fetchable`: blocks that the best peer can give now.
NoFetch WhyNoFetch(const Request& request, const WorkerState& computing, int64_t cached, int64_t fetchable,
                   std::initializer_list<Workers> peers) {
  int64_t most = 0;
  for (const Workers workers : peers) {
    for (const WorkerState& worker : workers) {
      if (worker.slot != computing.slot) most = std::max(most, worker.matched_blocks);
    }
  }
  if (Reused(request, most) <= cached) return NoFetch::kNone;
  if (!computing.can_fetch) return NoFetch::kCannot;
  return Reused(request, fetchable) > cached ? NoFetch::kDearer : NoFetch::kUnconfirmed;
}

}  // namespace

PrefixAffinity::PrefixAffinity(Options options, uint64_t seed)
    : options_(options),
      seed_(seed),
      prefills_({forecast::PrefillCost().base, forecast::PrefillCost().token, forecast::PrefillCost().pair}),
      steps_(kStepPrior),
      transfer_({options.transfer_base, options.transfer_token, 0}, {1, 4096, 1}) {}

void PrefixAffinity::Introduce(WorkerSlot slot, const forecast::StepCost& cost) {
  const double prefill = MeasuredPrefill(cost), step = MeasuredStep(cost);
  prefills_.Introduce(slot, {cost.base, cost.token, cost.pair}, prefill);
  steps_.Introduce(slot, {cost.base, cost.sequence, cost.context}, step);
}

void PrefixAffinity::OnWorkerLeft(WorkerSlot slot, Incarnation incarnation) {
  if (!Knows(slot)) return;
  if (kept_.size() >= kMaxKept) kept_.pop_front();
  kept_.push_back({.incarnation = incarnation, .prefill = prefills_.Get(slot), .step = steps_.Get(slot)});
}

void PrefixAffinity::OnWorkerBack(WorkerSlot slot, Incarnation incarnation) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [incarnation](const Kept& kept) {
    return kept.incarnation == incarnation;
  });
  if (found == kept_.end()) return;
  prefills_.Put(slot, found->prefill);
  steps_.Put(slot, found->step);
  kept_.erase(found);
}

void PrefixAffinity::OnSlotFreed(WorkerSlot slot) {
  prefills_.Put(slot, std::nullopt);
  steps_.Put(slot, std::nullopt);
}

void PrefixAffinity::Observe(const Outcome& outcome) {
  prefills_.Observe(
      outcome.prefill, outcome.compute_seconds, outcome.prefill == outcome.decode ? outcome.batch - 1 : 0,
      [&](PrefillFit& fleet, double seconds) {
        fleet.Observe(outcome.uncached_tokens, outcome.cached_tokens, seconds);
      },
      [&](const PrefillFit& fleet) { return fleet.Seconds(outcome.uncached_tokens, outcome.cached_tokens); });
  const StepFit::Features step = {1, outcome.batch, outcome.context_tokens};
  steps_.Observe(
      outcome.decode, outcome.step_seconds, outcome.batch - 1,
      [&](StepFit& fleet, double seconds) { fleet.Observe(step, seconds); },
      [&](const StepFit& fleet) { return fleet.Predict(step); });
  if (outcome.fetch_seconds >= 0) {
    transfer_.Observe({1, static_cast<double>(outcome.fetched_tokens), 0}, outcome.fetch_seconds);
  }
  constexpr double kWeight = 0.01;
  if (outcome.output_tokens > 0) {
    output_tokens_ += kWeight * (static_cast<double>(outcome.output_tokens) - output_tokens_);
  }
}

double PrefixAffinity::PrefillSeconds(WorkerSlot slot, int64_t uncached, int64_t cached) const {
  return prefills_.factor(slot) * prefills_.fleet().Seconds(uncached, cached);
}

double PrefixAffinity::AveragePrefillSeconds(int64_t tokens) const {
  return prefills_.average_factor() * prefills_.fleet().Seconds(tokens, 0);
}

double PrefixAffinity::StepSeconds(WorkerSlot slot, double answers, double context) const {
  return steps_.factor(slot) * steps_.fleet().Predict({1, answers, context});
}

double PrefixAffinity::Transfer(int64_t tokens) const {
  return tokens <= 0 ? 0 : transfer_.Predict({1, static_cast<double>(tokens), 0});
}

// Seconds that its answer takes there, each step with it in the batch: equal steps everywhere are what keeps
// the slowest answer fast. Then the KV to ship, from the prefill worker with the fastest way to it, and the
// wait for blocks. Where there are no prefill workers: its own queue, and what it would compute.
double PrefixAffinity::DecodeCost(const Request& request, const WorkerState& worker, Workers prefill) const {
  const double batch = std::max(0.0, static_cast<double>(worker.requests()));
  const double context = std::max(0.0, static_cast<double>(worker.context_tokens));
  const double with =
      StepSeconds(worker.slot, batch + 1, context + static_cast<double>(request.prompt_tokens));
  double cost = with * output_tokens_ * options_.decode_weight;
  if (prefill.empty()) {
    const int64_t cached = Reused(request, worker.confirmed_blocks);
    const int64_t queued = std::clamp<int64_t>(worker.queued_tokens, 0, kMaxTokens);
    if (queued > 0) cost += PrefillSeconds(worker.slot, queued, 0);
    double prompt = PrefillSeconds(worker.slot, request.prompt_tokens - cached, cached);
    if (const int64_t there = Reused(request, worker.disk_blocks); there > cached) {
      prompt = std::min(prompt, LoadSeconds(worker, cached, there) +
                                    PrefillSeconds(worker.slot, request.prompt_tokens - there, there));
    }
    cost += prompt;
  } else {
    const ShipForecast ships(worker, prefill);
    const int64_t here = Reused(request, worker.matched_blocks);
    int64_t missing = request.prompt_tokens - here;
    double ship = ships.Least(missing, Transfer(missing));
    if (const int64_t there = Reused(request, worker.disk_blocks); there > here) {
      missing = request.prompt_tokens - there;
      ship = std::min(ship, LoadSeconds(worker, here, there) + ships.Least(missing, Transfer(missing)));
    }
    cost += ship;
  }
  return cost + BlockWait(request, worker, with * output_tokens_) +
         BrokenLeases(request, worker, output_tokens_);
}

// Its matched blocks are there already: only others need room. A lease is a client's word that the blocks
// will be used, so all of them count, and at the price of a prompt of their own.
double PrefixAffinity::BrokenLeases(const Request& request, const WorkerState& worker,
                                    double answer_tokens) const {
  if (worker.leased_blocks <= 0) return 0;
  const double block_tokens = static_cast<double>(request.block_tokens);
  const double needed =
      std::ceil((static_cast<double>(request.prompt_tokens) + answer_tokens) / block_tokens) -
      static_cast<double>(worker.matched_blocks);
  const double leased = static_cast<double>(worker.leased_blocks);
  const double unleased = static_cast<double>(worker.free_blocks) +
                          std::max(0.0, static_cast<double>(worker.cached_blocks) - leased);
  const double broken = std::clamp(needed - unleased, 0.0, leased);
  if (broken <= 0) return 0;
  const double tokens = std::min(broken * block_tokens, static_cast<double>(kMaxTokens));
  return AveragePrefillSeconds(static_cast<int64_t>(tokens));
}

// Seconds until answers that end have given back what this one lacks, its matched blocks aside: each block is
// held for about a lifetime, so `held` blocks come free in that time (Little's law).
double PrefixAffinity::BlockWait(const Request& request, const WorkerState& worker, double lifetime) const {
  if (worker.total_blocks <= 0) return 0;
  const double available =
      static_cast<double>(worker.free_blocks) + static_cast<double>(worker.cached_blocks);
  const double tokens = static_cast<double>(request.prompt_tokens) + output_tokens_;
  const double needed = tokens / static_cast<double>(std::max<int64_t>(1, request.block_tokens)) -
                        static_cast<double>(worker.matched_blocks);
  const double short_of = needed - available;
  if (short_of <= 0) return 0;
  return lifetime * short_of / std::max(1.0, static_cast<double>(worker.total_blocks) - available);
}

// The least. Costs within noise are equal: then the worker with fewer requests, and among those the tie's. A
// session's requests share their ties, and go by these alone: so they stay together where nothing speaks
// against it.
size_t PrefixAffinity::SelectDecode(const Request& request, const Pools& pools, uint64_t tie_key) const {
  const Workers decode = pools.decode;
  std::vector<double> costs(decode.size());
  for (size_t i = 0; i < decode.size(); ++i) costs[i] = DecodeCost(request, decode[i], pools.prefill);
  const double least = *std::min_element(costs.begin(), costs.end());
  const double equal = least * (1 + kNoise);
  size_t best = decode.size();
  std::pair<int64_t, uint64_t> best_order;
  for (size_t i = 0; i < decode.size(); ++i) {
    if (costs[i] > equal) continue;
    const std::pair order(request.session == 0 ? decode[i].requests() : 0,
                          Tie(seed_, tie_key, decode[i].slot));
    if (best < decode.size() && order >= best_order) continue;
    best = i;
    best_order = order;
  }
  return best;
}

absl::Time PrefixAffinity::DueNow(const Booked& booked, double seconds, absl::Time now) const {
  const forecast::VirtualDeadline deadline = forecast::DeadlineOf(booked.since, seconds, options_.targets);
  return now <= deadline.latest ? booked.due : deadline.late;
}

double PrefixAffinity::Wait(const WorkerState& worker, absl::Time due, absl::Time now) const {
  // Which one runs: the worker took it when it was last free, the first in order of those that were there
  // then; or the first that came to it idle.
  const Booked* running = nullptr;
  for (const Booked& booked : worker.booked) {
    const auto order = [&](const Booked& entry) {
      return std::tuple(entry.since > worker.busy_since, entry.due, entry.request);
    };
    if (running == nullptr || order(booked) < order(*running)) running = &booked;
  }
  double ahead = 0;
  int64_t known = 0;
  for (const Booked& booked : worker.booked) {
    known += booked.tokens;
    // By what is known of the worker now: a prediction that was wrong when it was booked is wrong no longer.
    const double seconds = PrefillSeconds(worker.slot, booked.tokens, booked.cached);
    if (&booked == running) {
      const double elapsed = now > worker.busy_since ? absl::ToDoubleSeconds(now - worker.busy_since) : 0;
      ahead += std::max(0.0, seconds - elapsed);
    } else if (DueNow(booked, seconds, now) <= due) {
      ahead += seconds;
    }
  }
  // Prompts of other routers, and those known by their tokens alone: as if they all went first.
  if (worker.queued_tokens > known) ahead += PrefillSeconds(worker.slot, worker.queued_tokens - known, 0);
  return ahead;
}

PrefixAffinity::Candidate PrefixAffinity::Score(const Request& request, const Pools& pools, size_t at,
                                                int64_t fetchable, const ShipForecast& ships,
                                                int64_t missing) const {
  const WorkerState& worker = pools.prefill[at];
  // Where nothing tells pairs apart, shipping is taken to be hidden behind compute everywhere.
  const double ship = ships.Seconds(worker, missing, Transfer(missing)).value_or(0);
  // Requests there wait for what this one adds. This term sends long prompts behind each other.
  const double crowd = options_.congestion * (1 - options_.targets.tail_share) *
                       std::max(0.0, static_cast<double>(worker.requests()));
  const double broken = BrokenLeases(request, worker, 0);
  const int64_t here = Reused(request, worker.matched_blocks);
  // `peer`: what it lacks of the blocks comes from a peer, otherwise from its own disk.
  const auto score = [&](int64_t blocks, bool peer) {
    Candidate candidate;
    candidate.worker = at;
    candidate.cached_tokens = Reused(request, blocks);
    candidate.fetch_blocks = peer ? blocks : 0;
    Prediction& predicted = candidate.predicted;
    predicted.prefill =
        PrefillSeconds(worker.slot, request.prompt_tokens - candidate.cached_tokens, candidate.cached_tokens);
    candidate.due = forecast::DeadlineOf(request.arrival, predicted.prefill, options_.targets).At(pools.now);
    predicted.wait = Wait(worker, candidate.due, pools.now);
    const double fetch =
        peer ? Transfer(candidate.cached_tokens - here) : LoadSeconds(worker, here, candidate.cached_tokens);
    predicted.fetch = std::max(0.0, fetch - predicted.wait);
    predicted.ship = ship;
    // Blocks that it lacks displace others, which a later request would have come back for.
    const int64_t new_tokens = request.prompt_tokens - here;
    const double displaced = options_.displacement * AveragePrefillSeconds(new_tokens);
    candidate.cost = predicted.ttft() + crowd * predicted.prefill + displaced + broken;
    return candidate;
  };
  Candidate best = score(worker.matched_blocks, /*peer=*/false);
  if (worker.disk_blocks > worker.matched_blocks) {
    const Candidate loading = score(worker.disk_blocks, /*peer=*/false);
    if (loading.cost < best.cost) best = loading;
  }
  if (worker.can_fetch && fetchable > worker.matched_blocks) {
    const Candidate fetching = score(fetchable, /*peer=*/true);
    if (fetching.cost < best.cost) best = fetching;
  }
  return best;
}

// Best first. What was learnt of two alike workers is never quite the same: costs that differ by no more than
// noise are equal, and then the one with less to do goes first; otherwise one of them would get it all.
void PrefixAffinity::TakeBest(Workers prefill, std::vector<Candidate>& candidates, Selection& selection) {
  const size_t keep = std::min(kMaxPrefillTargets, candidates.size());
  for (size_t place = 0; place < keep; ++place) {
    const auto rest = candidates.begin() + static_cast<int64_t>(place);
    double least = std::numeric_limits<double>::infinity();
    for (auto candidate = rest; candidate != candidates.end(); ++candidate)
      least = std::min(least, candidate->cost);
    const double alike = least + kNoiseSeconds + kNoise * std::abs(least);
    auto best = candidates.end();
    for (auto candidate = rest; candidate != candidates.end(); ++candidate) {
      if (candidate->cost > alike) continue;
      const auto order = [&](const Candidate& w) {
        return std::pair(prefill[w.worker].queued_tokens, w.tie);
      };
      if (best == candidates.end() || order(*candidate) < order(*best)) best = candidate;
    }
    std::iter_swap(rest, best);
    selection.prefill.push_back(rest->worker);
  }
}

Prediction PrefixAffinity::Local(const Request& request, const WorkerState& decoder, int64_t blocks,
                                 bool from_disk) const {
  const int64_t cached = Reused(request, blocks);
  const int64_t uncached = request.prompt_tokens - cached;
  const int64_t queued = std::clamp<int64_t>(decoder.queued_tokens, 0, kMaxTokens);
  const double running = static_cast<double>(std::max<int64_t>(0, decoder.running));
  const int64_t chunk = decoder.chunk_tokens > 0 ? decoder.chunk_tokens : kDefaultLocalChunk;
  Prediction local;
  local.prefill = PrefillSeconds(decoder.slot, uncached, cached);
  if (queued > 0) local.wait = PrefillSeconds(decoder.slot, queued, 0);
  double near = 0;
  if (running > 0) {
    // A chunk to a step of the answers that run, as long as the SLO lets it be.
    const double step =
        StepSeconds(decoder.slot, running, std::max(0.0, static_cast<double>(decoder.context_tokens)));
    near = Knows(decoder.slot) ? std::min(1.0, step / options_.slo_tpot) : 1;
    const forecast::PrefillCost cost = prefills_.fleet().cost();
    const double factor = prefills_.factor(decoder.slot);
    const int64_t rows = std::clamp(forecast::RowsWithin(options_.slo_tpot - step, factor * cost.token,
                                                         factor * cost.pair, cached + uncached / 2),
                                    int64_t{kBlockTokens}, std::max<int64_t>(chunk, kBlockTokens));
    local.wait += step * static_cast<double>((uncached + queued) / rows + 1);
  }
  local.interference = local.prefill * running * near * near;
  const int64_t here = Reused(request, decoder.confirmed_blocks);
  const double fetch = from_disk ? LoadSeconds(decoder, here, cached) : Transfer(cached - here);
  local.fetch = std::max(0.0, fetch - local.wait);
  return local;
}

// An answer that is held up waits as a prompt in a queue does. What is computed here is cached where prompts
// are not sent for it.
double PrefixAffinity::LocalCost(const Prediction& local) const {
  return local.ttft() + options_.stream_weight * local.interference + options_.lost_reuse * local.prefill;
}

std::optional<WorkerSlot> PrefixAffinity::Peer(const Pools& pools, int64_t blocks, const WorkerState& fetcher,
                                               uint64_t tie_key) const {
  std::optional<WorkerSlot> best;
  std::tuple<bool, int64_t, uint64_t> best_order;
  const auto consider = [&](Workers peers) {
    for (const WorkerState& worker : peers) {
      if (worker.fetchable_blocks() < blocks) continue;
      const std::tuple order(worker.link_domain != fetcher.link_domain, worker.queued_tokens,
                             Tie(seed_, tie_key, worker.slot));
      if (best.has_value() && order >= best_order) continue;
      best = worker.slot;
      best_order = order;
    }
  };
  consider(pools.prefill);
  consider(pools.decode);
  if (!best.has_value()) consider(pools.leaving);  // it may be gone before it is asked
  return best;
}

Selection PrefixAffinity::Select(const Request& asked, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill, leaving = pools.leaving;
  Request request = asked;
  request.prompt_tokens = std::clamp<int64_t>(request.prompt_tokens, 1, kMaxTokens);
  request.block_tokens = std::clamp<int64_t>(request.block_tokens, 1, kMaxTokens);
  const uint64_t tie_key = request.session != 0 ? request.session : next_tie_key_++;
  Selection selection;
  selection.decode = SelectDecode(request, pools, tie_key);
  const WorkerState& decoder = decode[selection.decode];

  int64_t longest = 0, fetchable = 0;
  for (const WorkerState& worker : prefill) {
    longest = std::max({longest, worker.matched_blocks, worker.disk_blocks});
    fetchable = std::max(fetchable, worker.fetchable_blocks());
  }
  for (const Workers peers : {decode, leaving}) {
    for (const WorkerState& worker : peers) fetchable = std::max(fetchable, worker.fetchable_blocks());
  }

  const ShipForecast ships(decoder, prefill);
  const int64_t missing = request.prompt_tokens - Reused(request, decoder.matched_blocks);
  std::vector<Candidate> candidates;
  candidates.reserve(prefill.size());
  for (size_t i = 0; i < prefill.size(); ++i) {
    candidates.push_back(Score(request, pools, i, fetchable, ships, missing));
    candidates.back().tie = Tie(seed_, tie_key, prefill[i].slot);
  }
  TakeBest(prefill, candidates, selection);

  // A decode worker looks for cached blocks once, when it reserves: what it is only expected to hold it would
  // compute again.
  Prediction local = Local(request, decoder, decoder.confirmed_blocks);
  int64_t local_blocks = decoder.confirmed_blocks;
  if (decoder.disk_blocks > decoder.confirmed_blocks) {
    if (const Prediction loading = Local(request, decoder, decoder.disk_blocks, /*from_disk=*/true);
        LocalCost(loading) < LocalCost(local)) {
      local = loading;
      local_blocks = decoder.disk_blocks;
    }
  }
  if (decoder.can_fetch && fetchable > decoder.confirmed_blocks) {
    if (const Prediction fetching = Local(request, decoder, fetchable);
        LocalCost(fetching) < LocalCost(local)) {
      local = fetching;
      local_blocks = fetchable;
      selection.fetch_blocks = fetchable;
    }
  }
  const std::optional<bool> rule = RuleSaysLocal(request, decoder);
  const bool is_local = candidates.empty() ||
                        (!request.prefill_apart && rule.value_or(LocalCost(local) < candidates.front().cost));
  if (is_local) {
    selection.prefill.clear();
    const int64_t cached = Reused(request, local_blocks);
    selection.uncached_tokens = request.prompt_tokens - cached;
    if (selection.fetch_blocks > 0) {
      selection.fetch_from = Peer(pools, selection.fetch_blocks, decoder, tie_key);
    } else {
      selection.no_fetch = WhyNoFetch(request, decoder, cached, fetchable, {prefill, decode, leaving});
    }
    selection.predicted = local;
    selection.due = request.arrival;
    const bool chosen = request.prefill_here || rule.value_or(true);
    selection.reason = chosen ? Reason::kLocal : Reason::kNoPrefill;
    return selection;
  }
  const Candidate& candidate = candidates.front();
  selection.fetch_blocks = candidate.fetch_blocks;
  selection.uncached_tokens = request.prompt_tokens - candidate.cached_tokens;
  selection.predicted = candidate.predicted;
  selection.due = candidate.due;
  if (candidate.fetch_blocks == 0) {
    selection.no_fetch = WhyNoFetch(request, prefill[candidate.worker], candidate.cached_tokens, fetchable,
                                    {prefill, decode, leaving});
  }
  if (candidate.fetch_blocks > 0) {
    selection.fetch_from = Peer(pools, candidate.fetch_blocks, prefill[candidate.worker], tie_key);
    selection.reason = Reason::kFetch;
  } else if (longest == 0) {
    selection.reason = Reason::kCold;
  } else {
    const WorkerState& holder = prefill[candidate.worker];
    selection.reason =
        std::max(holder.matched_blocks, holder.disk_blocks) == longest ? Reason::kPrefix : Reason::kSpread;
  }
  return selection;
}

}  // namespace baton::router::placement
