#include "router/dispatch/dispatch_core.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton::router {
namespace {

// Prefill workers whose confirmed blocks are looked up: those that hold the longest prefixes.
constexpr size_t kMaxPeers = 8;
// Speculative entries live for some times the predicted TTFT, within these bounds; for the longest time if
// the policy predicts nothing.
constexpr double kExpectTtfts = 4;
constexpr absl::Duration kMinExpect = absl::Seconds(5), kMaxExpect = absl::Seconds(60);

}  // namespace

void DispatchCore::Match(std::span<const kv::BlockHash> chain, std::span<placement::WorkerState> decode,
                         std::span<placement::WorkerState> prefill,
                         std::span<placement::WorkerState> leaving) {
  if (index_ == nullptr) return;
  index_->Match(chain, &matches_);
  const auto confirm = [&](placement::WorkerState& state) {
    const auto matched = chain.first(static_cast<size_t>(state.matched_blocks));
    state.confirmed_blocks = matched.empty() ? 0 : index_->Confirmed(state.slot, matched);
  };
  const auto on_disk = [&](const placement::WorkerState& state) {
    return state.disk_slot.has_value() ? int64_t{matches_.of(*state.disk_slot)} : 0;
  };
  for (placement::WorkerState& state : decode) {
    state.matched_blocks = matches_.of(state.slot);
    state.disk_blocks = on_disk(state);
    confirm(state);
  }
  for (placement::WorkerState& state : leaving) {
    state.matched_blocks = matches_.of(state.slot);
    confirm(state);
  }
  std::vector<placement::WorkerState*> holders;
  for (placement::WorkerState& state : prefill) {
    state.matched_blocks = matches_.of(state.slot);
    state.disk_blocks = on_disk(state);
    if (state.serves_fetches && state.matched_blocks > 0) holders.push_back(&state);
  }
  const auto longest = holders.begin() + static_cast<int64_t>(std::min(kMaxPeers, holders.size()));
  std::partial_sort(holders.begin(), longest, holders.end(), [](const auto* a, const auto* b) {
    return std::pair(b->matched_blocks, a->slot) < std::pair(a->matched_blocks, b->slot);
  });
  for (auto at = holders.begin(); at != longest; ++at) confirm(**at);
}

placement::Selection DispatchCore::Select(const Request& request, placement::Pools pools) {
  if (request.prefill_here) pools.prefill = {};
  placement::Selection selection = policy_->Select(request, pools);
  const placement::WorkerState& decoder = pools.decode[selection.decode];
  selection.decode_slot = decoder.slot;
  selection.decode_matched = decoder.matched_blocks;
  if (!selection.prefill.empty()) {
    const placement::WorkerState& prefiller = pools.prefill[selection.prefill.front()];
    selection.prefill_slot = prefiller.slot;
    selection.prefill_matched = prefiller.matched_blocks;
  }
  if (selection.uncached_tokens <= 0) {
    const int64_t matched = std::max(selection.decode_matched, selection.prefill_matched);
    selection.uncached_tokens = std::max<int64_t>(1, request.prompt_tokens - matched * request.block_tokens);
  }
  selection.cached_tokens = std::max<int64_t>(0, request.prompt_tokens - selection.uncached_tokens);
  selection.trusted = deadlines_.trusted();
  return selection;
}

admission::FirstToken DispatchCore::Estimate(const Request& request,
                                             const placement::Prediction& predicted) const {
  admission::FirstToken first;
  if (deadlines_.trusted()) {
    first.ttft = deadlines_.WithMargin(predicted.ttft());
    first.queue = deadlines_.WithMargin(predicted.wait);
  }
  first.due = deadlines_.Due(request.deadline, request.arrival,
                             deadlines_.WithMargin(predicted.ttft() - predicted.wait));
  return first;
}

bool DispatchCore::TooLate(const admission::FirstToken& first, absl::Time now, bool busy) {
  const absl::Duration left = first.due - now;
  return busy && left > absl::ZeroDuration() && first.ttft > left;
}

absl::Time DispatchCore::ExpectUntil(const placement::Prediction& predicted, absl::Time now) {
  if (predicted.ttft() <= 0) return now + kMaxExpect;
  return now + std::clamp(absl::Seconds(kExpectTtfts * predicted.ttft()), kMinExpect, kMaxExpect);
}

std::vector<SpeculativeRun> DispatchCore::Expect(const placement::Selection& selection,
                                                 std::span<const kv::BlockHash> chain, absl::Time now,
                                                 size_t at_once) {
  std::vector<SpeculativeRun> left;
  if (index_ == nullptr) return left;
  const absl::Time until = ExpectUntil(selection.predicted, now);
  const auto expect = [&](WorkerSlot slot, int64_t matched) {
    const auto from = std::min(static_cast<size_t>(matched), chain.size());
    const std::span<const kv::BlockHash> missing = chain.subspan(from);
    const size_t entered = std::min(at_once, missing.size());
    if (entered > 0) index_->Speculate(slot, missing.first(entered), until);
    if (entered < missing.size()) left.push_back({slot, from + entered, until});
  };
  expect(selection.decode_slot, selection.decode_matched);
  if (selection.prefill_slot.has_value()) expect(*selection.prefill_slot, selection.prefill_matched);
  return left;
}

}  // namespace baton::router
