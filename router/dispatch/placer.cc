#include "router/dispatch/placer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "router/dispatch/worker_states.h"

namespace baton::router {
namespace {

// Blocks that the index is told of at once, for the next request of a burst; the rest follow when the lock is
// released.
constexpr size_t kExpectedAtOnce = 256;

std::shared_ptr<const fleet::Worker> OnSlot(WorkerSlot slot, std::initializer_list<WorkerSpan> pools) {
  for (const WorkerSpan pool : pools) {
    const auto found =
        std::find_if(pool.begin(), pool.end(), [&](const auto& worker) { return worker->slot() == slot; });
    if (found != pool.end()) return *found;
  }
  return nullptr;
}

}  // namespace

bool Placer::Busy(const fleet::View& view) {
  return std::any_of(view.decode.begin(), view.decode.end(),
                     [](const auto& worker) { return worker->BookedRequests() > 0; });
}

admission::FirstToken Placer::Estimate(const Request& request, const placement::Prediction& predicted,
                                       const fleet::Worker& computes) const {
  admission::FirstToken first = core_.Estimate(request, predicted);
  if (core_.deadlines().trusted()) {
    const char* const role = computes.identity().role == fleet::Role::kDecode ? "decode" : "prefill";
    first.worker = fmt::format("{} worker {}", role, computes.identity().id);
  }
  return first;
}

placement::Selection Placer::Select(const DispatchRequest& request, WorkerSpan open, const fleet::View& view,
                                    absl::Time now) {
  WorkerStates decode(open), prefill(view.prefill), leaving(view.leaving);
  core_.Match(request.chain, decode.workers, prefill.workers, leaving.workers);
  return core_.Select(
      request,
      {.decode = decode.workers, .prefill = prefill.workers, .leaving = leaving.workers, .now = now});
}

admission::FirstToken Placer::IfPlaced(const DispatchRequest& request, const fleet::View& view,
                                       absl::Time now) {
  const placement::Selection selection = Select(request, view.decode, view, now);
  const auto& computes =
      selection.prefill.empty() ? view.decode[selection.decode] : view.prefill[selection.prefill.front()];
  return Estimate(request, selection.predicted, *computes);
}

std::variant<Placer::Placed, admission::FirstToken> Placer::Place(const DispatchRequest& request,
                                                                  bool in_time, const fleet::View& view,
                                                                  WorkerSpan open, absl::Time now) {
  const placement::Selection selection = Select(request, open, view, now);
  const std::shared_ptr<fleet::Worker>& decoder = open[selection.decode];
  const std::shared_ptr<fleet::Worker> prefiller =
      selection.prefill.empty() ? nullptr : view.prefill[selection.prefill.front()];
  if (in_time) {
    admission::FirstToken first =
        Estimate(request, selection.predicted, prefiller != nullptr ? *prefiller : *decoder);
    if (DispatchCore::TooLate(first, now, Busy(view))) return first;
  }

  Placed placed;
  Placement& placement = placed.placement;
  placement.decode = decoder;
  for (const size_t at : selection.prefill) placement.prefill.push_back(view.prefill[at]);
  if (selection.fetch_from.has_value()) {
    placement.fetch_from = OnSlot(*selection.fetch_from, {view.prefill, open, view.leaving});
  }
  placement.selection = selection;
  placement.prompt_tokens = request.prompt_tokens;
  placement.prompt_blocks = std::ssize(request.chain);
  placement.debug = request.debug;
  placement.observer = observer_;
  for (const auto& worker : view.decode) {
    if (!request.last_worker.has_value() || worker->identity().incarnation != *request.last_worker) continue;
    placement.last_worker = {.here = true, .blocks = core_.matches().of(worker->slot())};
  }

  fleet::Work work(request.prompt_tokens);
  work.uncached_tokens = selection.uncached_tokens;
  work.cached_tokens = selection.cached_tokens;
  work.due = selection.due;
  placement.booking = fleet_.Book(decoder, prefiller, work, now);
  CountHotPrefix(request, now);
  placed.speculative = core_.Expect(selection, request.chain, now, kExpectedAtOnce);
  return placed;
}

void Placer::CountHotPrefix(const DispatchRequest& request, absl::Time now) {
  const index::Matches& matches = core_.matches();
  const size_t longest = std::min<size_t>(matches.longest, request.chain.size());
  if (longest == 0) return;
  const auto holders = std::count(matches.blocks.begin(), matches.blocks.end(), matches.longest);
  hot_.Placed(request.chain[longest - 1], static_cast<int64_t>(longest), holders, now);
}

}  // namespace baton::router
