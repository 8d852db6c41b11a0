// The scheduler's part in fetches: sequences whose blocks a tier or a peer fills first, and blocks that are
// taken back from fetches by peers.
#include <algorithm>
#include <utility>

#include "decode_service/scheduler.h"
#include "transfer/fetch/disk_source.h"
#include "transfer/fetch/fetcher.h"
#include "transfer/fetch/peer_server.h"

namespace baton::decode_service {

using Phase = Sequence::Phase;

bool Scheduler::StartFetch(SequenceId id, Sequence& sequence) {
  if (StartLoad(id, sequence, peer_fetch_.disk, sequence.asked_disk)) return true;
  if (peer_fetch_.fetcher != nullptr &&
      StartFetchFrom(id, sequence, *peer_fetch_.fetcher, std::exchange(sequence.peer, {}))) {
    return true;
  }
  return StartLoad(id, sequence, peer_fetch_.shared, sequence.asked_shared);
}

bool Scheduler::StartLoad(SequenceId id, Sequence& sequence, fetch::DiskSource* tier, bool& asked) {
  if (tier == nullptr || std::exchange(asked, true)) return false;
  const int64_t from = sequence.kv().computed_tokens() / kBlockTokens;
  // The block of the last token is computed, for its logits.
  const int64_t whole = (sequence.size() - 1) / kBlockTokens;
  if (from >= whole) return false;
  const auto chain = sequence.chain.Hashes(std::span(sequence.tokens).first(whole * kBlockTokens));
  return StartFetchFrom(id, sequence, tier->fetcher(), tier->Find(chain, from));
}

bool Scheduler::StartFetchFrom(SequenceId id, Sequence& sequence, fetch::Fetcher& fetcher,
                               const fleet::v1::PeerPrefix& source) {
  const int64_t from = sequence.kv().computed_tokens() / kBlockTokens;
  const int64_t count = int64_t{source.blocks()} - from;
  if (count < 1) return false;
  const double saved = Saved(sequence, int64_t{source.blocks()} * kBlockTokens);
  if (!fetcher.Worthwhile(source, count, 0, saved)) return false;
  const auto prefix = std::span(sequence.tokens).first(int64_t{source.blocks()} * kBlockTokens);
  const std::vector<kv::BlockHash> chain = sequence.chain.Hashes(prefix);
  sequence.phase = Phase::kFetching;
  sequence.source = source;
  sequence.fetcher = &fetcher;
  sequence.lease.fetch =
      fetcher.Start(source, sequence.request_id, std::span(chain).subspan(from),
                    sequence.kv().blocks().subspan(from, count), 0, saved,
                    {.leased =
                         [this, id, from](std::span<const kv::HeldLease> leases) {
                           sequences_.at(id)->kv().Inherit(leases, from, clock_.Now());
                         },
                     .committed =
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
  sequence.report.Fetched(now, sequence.source.worker(), fetch.committed() * kBlockTokens,
                          now - fetch.started(), sequence.kv().computed_tokens());
  // This may be a callback of the fetch: it lives until ReleaseFinished.
  leases_.Release({.fetch = std::move(sequence.lease.fetch)});
  // Another may have what this one has not.
  if (!StartFetch(id, sequence)) StartPrefill(id, sequence);
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
    const double saved = Saved(*sequence, int64_t{sequence->source.blocks()} * kBlockTokens);
    if (sequence->fetcher->WorthWaiting(*sequence->lease.fetch, saved)) continue;
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
