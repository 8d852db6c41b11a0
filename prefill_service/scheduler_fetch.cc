// The scheduler's part in fetches: what a tier or a peer has of the prompts that wait.
#include <algorithm>
#include <utility>

#include "prefill_service/scheduler.h"
#include "transfer/fetch/disk_source.h"
#include "transfer/fetch/fetcher.h"
#include "transfer/fetch/peer_server.h"

namespace baton::prefill_service {

void Scheduler::BeginFetch(Prompt& prompt) {
  if (BeginLoad(prompt, peer_fetch_.disk, prompt.asked_disk)) return;
  if (peer_fetch_.fetcher != nullptr &&
      BeginFetchFrom(prompt, *peer_fetch_.fetcher, std::exchange(prompt.job.peer, {}))) {
    return;
  }
  if (BeginLoad(prompt, peer_fetch_.shared, prompt.asked_shared)) return;
  if (prompt.reused != nullptr) BeginSpanFetch(prompt);
}

bool Scheduler::BeginLoad(Prompt& prompt, fetch::DiskSource* tier, bool& asked) {
  if (tier == nullptr || std::exchange(asked, true)) return false;
  // One token at least is computed, for its logits.
  const auto whole = static_cast<size_t>((prompt.size() - 1) / kBlockTokens);
  const auto chain = std::span(prompt.chain).first(whole);
  return prompt.matched_blocks < std::ssize(chain) &&
         BeginFetchFrom(prompt, tier->fetcher(), tier->Find(chain, prompt.matched_blocks));
}

bool Scheduler::BeginFetchFrom(Prompt& prompt, fetch::Fetcher& fetcher, const fleet::v1::PeerPrefix& source) {
  const int64_t target = source.blocks();
  if (target <= prompt.matched_blocks) return false;
  // Room for all of the prompt, or it would be fetched in vain.
  if (engine_.pool().available() < BlocksFor(prompt.size())) return false;
  const double wait = WaitOf(prompt);
  const double saved = Saved(prompt, target);
  if (!fetcher.Worthwhile(source, target - prompt.matched_blocks, wait, saved)) return false;
  const JobId id = prompt.id;
  auto prefetch =
      fetch::PrefixPrefetch::Begin(fetcher, engine_.pool(), prompt.rule, source, prompt.job.request_id,
                                   prompt.job.tokens, prompt.chain, wait, saved,
                                   {.prefetched = [this, id](int64_t blocks) { OnPrefetched(id, blocks); },
                                    .ended = [this, id] { OnPrefetchEnded(id); }},
                                   prompt.job.trace);
  if (prefetch == nullptr) return false;
  if (prompt.fetcher == nullptr) prompt.matched_before_fetch = prompt.matched_blocks;
  prompt.prefetch = std::move(prefetch);
  prompt.source = source;
  prompt.fetcher = &fetcher;
  prompt.due = DueTime(prompt);
  order_.Move(id, prompt.due);
  return true;
}

double Scheduler::WaitOf(const Prompt& prompt) const {
  const absl::Time now = clock_.Now();
  double wait = 0;
  for (const Prompt& other : computing_) {
    wait += forecast_.Seconds(other.remaining(), other.kv->computed_tokens());
  }
  for (const Prompt& other : queued_) {
    if (other.id == prompt.id || other.due.At(now) > prompt.due.At(now)) continue;
    const int64_t cached = std::min(other.matched_blocks * kBlockTokens, other.size() - 1);
    wait += forecast_.Seconds(other.size() - cached, cached);
  }
  return wait;
}

void Scheduler::OnPrefetchEnded(JobId id) {
  Prompt& prompt = *waiting_.at(id);
  ReleasePrefetch(prompt);
  // Another may have what this one has not.
  BeginFetch(prompt);
}

void Scheduler::OnPrefetched(JobId id, int64_t blocks) {
  Prompt& prompt = *waiting_.at(id);
  prompt.matched_blocks = std::max(prompt.matched_blocks, blocks);
  prompt.prefetched_blocks = blocks;
  prompt.last_prefetched = clock_.Now();
  prompt.fetched_from = prompt.source.worker();
  more_cached_ = true;  // for others too
}

double Scheduler::Saved(const Prompt& prompt, int64_t blocks) const {
  const int64_t now = std::min(prompt.matched_blocks * kBlockTokens, prompt.size() - 1);
  const int64_t then = std::max<int64_t>(now, blocks * kBlockTokens);
  return forecast_.Seconds(prompt.size() - now, now) - forecast_.Seconds(prompt.size() - then, then);
}

bool Scheduler::AwaitsBlocks(Prompt& prompt) {
  const double saved =
      prompt.fetching_span.has_value() ? prompt.span_saved : Saved(prompt, prompt.source.blocks());
  if (prompt.fetcher->WorthWaiting(prompt.prefetch->fetch(), saved)) return true;
  ReleasePrefetch(prompt);
  return false;
}

void Scheduler::ReleasePrefetch(Prompt& prompt) {
  if (prompt.prefetch == nullptr) return;
  prompt.prefetch->Release();
  if (!prompt.fetching_span.has_value() && prompt.prefetch->fetch().committed() > 0) {
    prompt.fetch_seconds +=
        absl::ToDoubleSeconds(prompt.last_prefetched - prompt.prefetch->fetch().started());
  }
  prompt.fetching_span.reset();
  released_prefetches_.push_back(std::move(prompt.prefetch));
  prompt.due = DueTime(prompt);
  if (waiting_.contains(prompt.id)) order_.Move(prompt.id, prompt.due);
}

bool Scheduler::MakeRoom() {
  const int64_t before = engine_.pool().available();
  if (peer_fetch_.server != nullptr) peer_fetch_.server->MakeRoom();
  for (Prompt& prompt : queued_) ReleasePrefetch(prompt);
  return engine_.pool().available() > before;
}

}  // namespace baton::prefill_service
