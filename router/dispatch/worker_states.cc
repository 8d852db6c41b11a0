#include "router/dispatch/worker_states.h"

#include <algorithm>
#include <utility>

namespace baton::router {
namespace {

// Holders that are looked at, those of the longest prefixes.
constexpr size_t kMaxPeers = 8;

}  // namespace

WorkerStates::WorkerStates(std::span<const std::shared_ptr<fleet::Worker>> from,
                           const index::Matches& matches) {
  workers.reserve(from.size());
  for (const auto& worker : from) {
    placement::WorkerState& state = workers.emplace_back();
    state.slot = worker->slot();
    state.matched_blocks = matches.of(state.slot);
    state.queued_tokens = worker->QueuedTokens();
    state.running = worker->Requests();
    state.context_tokens = worker->ContextTokens();
    state.free_blocks = worker->FreeBlocks();
    state.cached_blocks = worker->CachedBlocks();
    state.total_blocks = worker->TotalBlocks();
    state.can_fetch = worker->identity().peer_fetch;
    const fleet::Worker::Prompts prompts = worker->prompts();
    if (prompts.booked.empty()) continue;
    state.busy_since = prompts.busy_since;
    auto& list = booked.emplace_back();
    for (const fleet::BookedPrompt& prompt : prompts.booked) {
      list.push_back({.due = prompt.due,
                      .tokens = prompt.tokens,
                      .cached = prompt.cached,
                      .since = prompt.since,
                      .request = prompt.id});
    }
    state.booked = list;
  }
}

void ConfirmPeers(const index::PrefixIndex* index, std::span<const kv::BlockHash> chain, WorkerStates& decode,
                  WorkerStates& prefill) {
  if (index == nullptr || chain.empty()) return;
  std::vector<placement::WorkerState*> holders;
  for (WorkerStates* states : {&decode, &prefill}) {
    for (placement::WorkerState& state : states->workers) {
      if (state.can_fetch && state.matched_blocks > 0) holders.push_back(&state);
    }
  }
  const auto longest = holders.begin() + static_cast<int64_t>(std::min(kMaxPeers, holders.size()));
  std::partial_sort(holders.begin(), longest, holders.end(), [](const auto* a, const auto* b) {
    return std::pair(b->matched_blocks, a->slot) < std::pair(a->matched_blocks, b->slot);
  });
  for (auto at = holders.begin(); at != longest; ++at) {
    (*at)->confirmed_blocks =
        index->Confirmed((*at)->slot, chain.first(static_cast<size_t>((*at)->matched_blocks)));
  }
}

}  // namespace baton::router
