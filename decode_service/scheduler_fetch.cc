// The scheduler's part in peer fetch: sequences whose blocks a peer fills first, and blocks that are taken
// back from fetches by peers.
#include <algorithm>
#include <utility>

#include "common/fetch/fetcher.h"
#include "common/fetch/peer_server.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {

using Phase = Sequence::Phase;

bool Scheduler::StartFetch(SequenceId id, Sequence& sequence) {
  const int64_t from = sequence.kv().computed_tokens() / kBlockTokens;
  const int64_t count = int64_t{sequence.peer.blocks()} - from;
  if (peer_fetch_.fetcher == nullptr || count < 1) return false;
  const double saved = Saved(sequence, int64_t{sequence.peer.blocks()} * kBlockTokens);
  if (!peer_fetch_.fetcher->Worthwhile(sequence.peer, count, 0, saved)) return false;
  const auto prefix = std::span(sequence.tokens).first(int64_t{sequence.peer.blocks()} * kBlockTokens);
  const std::vector<kv::BlockHash> chain =
      kv::HashChain(engine_.RootFor(kv::TenantSalt(sequence.salt)), prefix);
  sequence.phase = Phase::kFetching;
  sequence.lease.fetch = peer_fetch_.fetcher->Start(
      sequence.peer, sequence.request_id, std::span(chain).subspan(from),
      sequence.kv().blocks().subspan(from, count), 0, saved,
      {.committed =
           [this, id, from](int64_t blocks) {
             Sequence& fetching = *sequences_.at(id);
             fetching.kv().Computed(fetching.tokens, (from + blocks) * kBlockTokens);
           },
       .ended = [this, id](const absl::Status&) { OnFetchEnded(id); }},
      sequence.trace);
  return true;
}

void Scheduler::OnFetchEnded(SequenceId id) {
  Sequence& sequence = *sequences_.at(id);
  const fetch::Fetch& fetch = *sequence.lease.fetch;
  const absl::Time now = clock_.Now();
  sequence.report.Fetched(now, sequence.peer.worker(), fetch.committed() * kBlockTokens,
                          now - fetch.started(), sequence.kv().computed_tokens());
  // This may be a callback of the fetch: it lives until ReleaseFinished.
  leases_.Release({.fetch = std::move(sequence.lease.fetch)});
  StartPrefill(id, sequence);
}

double Scheduler::Saved(const Sequence& sequence, int64_t prefix) const {
  const int64_t now = sequence.kv().computed_tokens();
  const int64_t then = std::max(now, prefix);
  forecast::StepLoad spared;
  spared.AddRows(now, then - now);
  return forecast_.PromptSeconds(spared);
}

void Scheduler::ReviewFetches() {
  for (auto& [id, sequence] : sequences_) {
    // Blocks that a link still writes can't be computed into.
    if (sequence->phase != Phase::kFetching || sequence->lease.fetch->writing()) continue;
    const double saved = Saved(*sequence, int64_t{sequence->peer.blocks()} * kBlockTokens);
    if (peer_fetch_.fetcher->WorthWaiting(*sequence->lease.fetch, saved)) continue;
    sequence->lease.fetch->Release();
    OnFetchEnded(id);
  }
}

absl::Status Scheduler::GrowKv(Sequence& sequence, int64_t capacity) {
  absl::Status grown = sequence.kv().Grow(capacity);
  if (!grown.ok() && peer_fetch_.server != nullptr && peer_fetch_.server->MakeRoom()) {
    grown = sequence.kv().Grow(capacity);
  }
  return grown;
}

}  // namespace baton::decode_service
