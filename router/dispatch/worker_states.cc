#include "router/dispatch/worker_states.h"

#include <utility>

namespace baton::router {
WorkerStates::WorkerStates(WorkerSpan from) {
  workers.reserve(from.size());
  for (const auto& worker : from) {
    placement::WorkerState& state = workers.emplace_back();
    state.slot = worker->slot();
    state.disk_slot = worker->disk_slot();
    if (state.disk_slot.has_value()) state.disk_cost = worker->disk_cost();
    state.queued_tokens = worker->QueuedTokens();
    state.running = worker->Requests();
    state.context_tokens = worker->ContextTokens();
    state.free_blocks = worker->FreeBlocks();
    state.cached_blocks = worker->CachedBlocks();
    state.leased_blocks = worker->LeasedBlocks();
    state.total_blocks = worker->TotalBlocks();
    state.can_fetch = state.serves_fetches = worker->identity().peer_fetch;
    state.chunk_tokens = worker->identity().chunk_tokens;
    state.local_prefill_tokens = worker->identity().local_prefill_tokens;
    state.key = worker->key();
    state.link_domain = worker->domain_key();
    if (auto costs = worker->peer_costs(); !costs->empty()) {
      state.peer_costs = *costs;
      peer_costs.push_back(std::move(costs));
    }
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

}  // namespace baton::router
