// The scheduler's part in reusable spans: their canonical sequences are computed like prompts, their tokens
// land between steps, and what is left of the prompt are runs of rows with landed tokens between them. All
// runs of a prompt may be in one step: in each layer, KV of all rows is stored before any row attends.
#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/chunk_planner.h"
#include "prefill_service/scheduler.h"
#include "transfer/fetch/disk_source.h"
#include "transfer/fetch/fetcher.h"

namespace baton::prefill_service {

int64_t Scheduler::Prompt::cached_tokens() const {
  if (found_tokens == 0) return kv->cached_tokens();
  return std::max(kv->cached_tokens(), job.ticket.first_block * kBlockTokens) + found_tokens;
}

int64_t Scheduler::CompleteBlocks(const Prompt& prompt, int64_t computed) {
  return computed == prompt.size() ? BlocksFor(computed) : computed / kBlockTokens;
}

bool Scheduler::BeginSpanFetch(Prompt& prompt) {
  fetch::DiskSource* const tiers[] = {peer_fetch_.disk, peer_fetch_.shared};
  constexpr size_t kTiers = std::size(tiers);
  while (prompt.asked_spans < kTiers * prompt.reused->size()) {
    const size_t span = prompt.asked_spans / kTiers;
    fetch::DiskSource* const tier = tiers[prompt.asked_spans++ % kTiers];
    if (tier != nullptr && BeginSpanFetchFrom(prompt, span, *tier)) return true;
  }
  return false;
}

bool Scheduler::BeginSpanFetchFrom(Prompt& prompt, size_t span, fetch::DiskSource& tier) {
  const engine::ReusedSpans& reused = *prompt.reused;
  if (reused.landed_end(span) <= prompt.matched_blocks * kBlockTokens) return false;
  const std::span<const kv::BlockHash> hashes = reused.hashes(span);
  const int64_t here = engine_.pool().MatchPrefix(hashes);
  if (here == std::ssize(hashes)) return false;
  const fleet::v1::PeerPrefix source = tier.Find(hashes, here);
  const int64_t target = source.blocks();
  if (target <= here) return false;
  // Room for all of the prompt, or it would be fetched in vain.
  int64_t needed = BlocksFor(prompt.size());
  for (const kv::ReusableSpan& one : prompt.rule.spans()) needed += kv::CanonicalBlocks(one);
  if (engine_.pool().available() < needed) return false;
  const double wait = WaitOf(prompt);
  const double saved = forecast_.Seconds((target - here) * kBlockTokens, here * kBlockTokens);
  if (!tier.fetcher().Worthwhile(source, target - here, wait, saved)) return false;
  // A prefetch ends before a token that is computed, which here is none of the sequence's.
  std::vector<TokenId> tokens(reused.canonical(span).begin(), reused.canonical(span).end());
  tokens.emplace_back(0);
  auto prefetch = fetch::PrefixPrefetch::Begin(tier.fetcher(), engine_.pool(), reused.chain(), source,
                                               prompt.job.request_id, tokens, hashes, wait, saved,
                                               {.prefetched = [this](int64_t) { more_cached_ = true; },
                                                .ended = [this, id = prompt.id] { OnPrefetchEnded(id); }},
                                               prompt.job.trace);
  if (prefetch == nullptr) return false;
  prompt.prefetch = std::move(prefetch);
  prompt.source = source;
  prompt.fetcher = &tier.fetcher();
  prompt.fetching_span = span;
  prompt.span_saved = saved;
  return true;
}

bool Scheduler::Land() {
  int64_t left = options_.landing_tokens;
  for (Prompt& prompt : computing_) {
    if (prompt.reused == nullptr) continue;
    while (left > 0) {
      const int64_t tokens = prompt.reused->Land(left, prompt.kv->blocks());
      if (tokens == 0) break;
      left -= tokens;
    }
  }
  return left < options_.landing_tokens;
}

bool Scheduler::PlanSpans(std::list<Prompt>::iterator prompt, engine::ChunkPlanner& chunks,
                          std::vector<Planned>& plan) {
  const engine::ReusedSpans& reused = *prompt->reused;
  int64_t planned = 0;
  for (size_t span = reused.NextMissing(0); span < reused.size(); span = reused.NextMissing(span + 1)) {
    const int64_t most = std::min(reused.remaining(span), options_.chunk_tokens - planned);
    if (most < kBlockTokens) return true;  // a prompt's share of the step
    const int64_t rows = chunks.Take(reused.computed(span), most / kBlockTokens * kBlockTokens);
    if (rows == 0) return false;
    planned += rows;
    plan.push_back({.prompt = prompt, .first = reused.computed(span), .rows = rows, .span = span});
  }
  return true;
}

bool Scheduler::PlanRuns(std::list<Prompt>::iterator prompt, engine::ChunkPlanner& chunks,
                         std::vector<Planned>& plan) {
  const engine::ReusedSpans& reused = *prompt->reused;
  const size_t before = plan.size();
  int64_t left = options_.chunk_tokens;
  bool room_for_more = true;
  int64_t end = reused.SkipLanded(prompt->kv->computed_tokens());
  while (end < prompt->size()) {
    const int64_t most = std::min(left, reused.EndOfRows(end) - end);
    if (most == 0) break;  // the next token has not landed yet, or the prompt has its share
    const int64_t rows = chunks.Take(end, most);
    room_for_more = rows > 0;
    if (!room_for_more) break;
    plan.push_back({.prompt = prompt, .first = end, .rows = rows});
    left -= rows;
    end = reused.SkipLanded(end + rows);
  }
  if (plan.size() == before) return room_for_more;
  // As for other prompts: what the step computes can leave, or is not computed.
  const int64_t first_block = prompt->kv->computed_tokens() / kBlockTokens;
  const int64_t blocks = CompleteBlocks(*prompt, end) - first_block;
  const int64_t room = prompt->shipment->Reserve(first_block, blocks, 1);
  if (room < blocks) end = (first_block + room) * kBlockTokens;
  while (plan.size() > before && plan.back().first >= end) plan.pop_back();
  if (plan.size() == before) {
    prompt->shipment->Unreserve();
    return room_for_more;
  }
  Planned& last = plan.back();
  last.rows = std::min(last.rows, end - last.first);
  last.end = end;
  return room_for_more;
}

}  // namespace baton::prefill_service
