#include "lab/simulate/baselines/baselines.h"

#include <algorithm>
#include <limits>

#include "router/placement/tie.h"

namespace baton::lab::simulate {
namespace {

using PlacementRequest = router::Request;
using router::placement::Pools;
using router::placement::Reason;
using router::placement::Selection;
using router::placement::Tie;
using router::placement::Workers;
using router::placement::WorkerState;

int64_t Reused(const PlacementRequest& request, int64_t blocks) {
  return std::min(blocks * request.block_tokens, request.prompt_tokens - 1);
}

double Blocks(const PlacementRequest& request, int64_t tokens) {
  return static_cast<double>(tokens) / static_cast<double>(request.block_tokens);
}

// Index of the worker with the least cost; equals by tie.
template <typename Cost>
size_t Least(Workers workers, uint64_t seed, uint64_t tie_key, Cost cost) {
  size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  uint64_t best_tie = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    const double c = cost(workers[i]);
    const uint64_t tie = Tie(seed, tie_key, workers[i].slot);
    if (c < least || (c == least && tie < best_tie)) {
      best = i;
      least = c;
      best_tie = tie;
    }
  }
  return best;
}

Selection Selected(const PlacementRequest& request, Workers prefill, size_t decode, size_t at,
                   Reason reason) {
  Selection selection;
  selection.decode = decode;
  selection.prefill = {at};
  selection.uncached_tokens = request.prompt_tokens - Reused(request, prefill[at].matched_blocks);
  selection.reason = reason;
  return selection;
}

}  // namespace

Selection CacheAware::Select(const PlacementRequest& request, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill;
  constexpr int64_t kBalanceAbsolute = 32;
  constexpr double kBalanceRelative = 1.1;
  constexpr double kCacheThreshold = 0.5;
  const uint64_t tie_key = next_tie_key_++;
  const auto load = [](const WorkerState& worker) { return static_cast<double>(worker.requests()); };
  const size_t decoder = Least(decode, seed_, tie_key, load);
  const size_t fewest = Least(prefill, seed_, tie_key, load);
  int64_t most = 0;
  for (const WorkerState& worker : prefill) most = std::max(most, worker.requests());
  const int64_t least = prefill[fewest].requests();
  if (most - least > kBalanceAbsolute &&
      static_cast<double>(most) > kBalanceRelative * static_cast<double>(least)) {
    return Selected(request, prefill, decoder, fewest, Reason::kLoad);
  }
  const size_t holder = Least(prefill, seed_, tie_key, [](const WorkerState& worker) {
    return -static_cast<double>(worker.matched_blocks);
  });
  const double rate = static_cast<double>(Reused(request, prefill[holder].matched_blocks)) /
                      static_cast<double>(request.prompt_tokens);
  if (rate > kCacheThreshold) return Selected(request, prefill, decoder, holder, Reason::kPrefix);
  return Selected(request, prefill, decoder, fewest, Reason::kLoad);
}

Selection BlockCost::Select(const PlacementRequest& request, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill;
  const uint64_t tie_key = next_tie_key_++;
  const size_t decoder = Least(decode, seed_, tie_key, [&](const WorkerState& worker) {
    return Blocks(request, worker.context_tokens);
  });
  const size_t at = Least(prefill, seed_, tie_key, [&](const WorkerState& worker) {
    const double to_prefill = Blocks(request, worker.queued_tokens + request.prompt_tokens) -
                              static_cast<double>(worker.matched_blocks);
    const double in_use =
        static_cast<double>(worker.total_blocks - worker.free_blocks - worker.cached_blocks);
    return std::max(0.0, to_prefill) + in_use;
  });
  return Selected(request, prefill, decoder, at,
                  prefill[at].matched_blocks > 0 ? Reason::kPrefix : Reason::kLoad);
}

Selection WeightedScores::Select(const PlacementRequest& request, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill;
  constexpr double kPrefix = 3, kQueue = 2, kFree = 2;
  const uint64_t tie_key = next_tie_key_++;
  const auto choose = [&](Workers workers) {
    double shortest_queue = std::numeric_limits<double>::infinity(), longest_queue = 0;
    for (const WorkerState& worker : workers) {
      shortest_queue = std::min(shortest_queue, static_cast<double>(worker.requests()));
      longest_queue = std::max(longest_queue, static_cast<double>(worker.requests()));
    }
    return Least(workers, seed_, tie_key, [&](const WorkerState& worker) {
      const double prefix = static_cast<double>(Reused(request, worker.matched_blocks)) /
                            static_cast<double>(request.prompt_tokens);
      const double queue =
          longest_queue > shortest_queue
              ? (longest_queue - static_cast<double>(worker.requests())) / (longest_queue - shortest_queue)
              : 1;
      const double total = static_cast<double>(std::max<int64_t>(1, worker.total_blocks));
      const double free = static_cast<double>(worker.free_blocks + worker.cached_blocks) / total;
      return -(kPrefix * prefix + kQueue * queue + kFree * free);
    });
  };
  const size_t at = choose(prefill);
  return Selected(request, prefill, choose(decode), at,
                  prefill[at].matched_blocks > 0 ? Reason::kPrefix : Reason::kLoad);
}

double TtftEstimate::Prefill(int64_t prompt_tokens, int64_t cached_tokens) const {
  const double uncached = static_cast<double>(prompt_tokens - cached_tokens);
  return truth_.base + truth_.token * uncached +
         truth_.pair * uncached * (static_cast<double>(cached_tokens) + uncached / 2);
}

Selection TtftEstimate::Select(const PlacementRequest& request, const Pools& pools) {
  const Workers decode = pools.decode, prefill = pools.prefill;
  const uint64_t tie_key = next_tie_key_++;
  const size_t decoder = Least(decode, seed_, tie_key, [](const WorkerState& worker) {
    return static_cast<double>(worker.context_tokens);
  });
  int64_t longest = 0;
  router::WorkerSlot holder;
  for (const Workers workers : {prefill, decode}) {
    for (const WorkerState& worker : workers) {
      if (worker.fetchable_blocks() <= longest) continue;
      longest = worker.fetchable_blocks();
      holder = worker.slot;
    }
  }
  // Time to first token if it fetches the longest match, or not.
  const auto fetches = [&](const WorkerState& worker) {
    return fetch_ && worker.can_fetch &&
           static_cast<double>(longest) >=
               kBalance * static_cast<double>(std::max<int64_t>(1, worker.matched_blocks)) &&
           longest > worker.matched_blocks;
  };
  const auto prefill_seconds = [&](const WorkerState& worker) {
    return Prefill(request.prompt_tokens, Reused(request, fetches(worker) ? longest : worker.matched_blocks));
  };
  const size_t at = Least(prefill, seed_, tie_key, [&](const WorkerState& worker) {
    double queue = 0;
    for (const auto& booked : worker.booked) queue += Prefill(booked.tokens + booked.cached, booked.cached);
    if (pools.now > worker.busy_since) {
      queue = std::max(0.0, queue - absl::ToDoubleSeconds(pools.now - worker.busy_since));
    }
    double transfer = 0;
    if (fetches(worker)) {
      transfer = truth_.transfer_base +
                 truth_.transfer_token *
                     static_cast<double>((longest - worker.matched_blocks) * request.block_tokens);
    }
    return transfer + queue + prefill_seconds(worker);
  });
  Selection selection = Selected(request, prefill, decoder, at,
                                 prefill[at].matched_blocks > 0 ? Reason::kPrefix : Reason::kLoad);
  selection.predicted.prefill = prefill_seconds(prefill[at]);
  if (fetches(prefill[at])) {
    selection.fetch_from = holder;
    selection.fetch_blocks = longest;
    selection.uncached_tokens = request.prompt_tokens - Reused(request, longest);
    selection.reason = Reason::kFetch;
  }
  return selection;
}

}  // namespace baton::lab::simulate
