#include "transfer/fetch/prefix_prefetch.h"

#include <utility>

#include "common/base/check.h"

namespace baton::fetch {

PrefixPrefetch::PrefixPrefetch(kv::BlockPool& pool, const kv::PromptChain& rule,
                               std::span<const TokenId> tokens, int64_t target, Callbacks callbacks)
    : tokens_(tokens.begin(), tokens.begin() + target * kBlockTokens + 1),
      target_(target),
      callbacks_(std::move(callbacks)),
      kv_(pool, rule) {}

std::unique_ptr<PrefixPrefetch> PrefixPrefetch::Begin(
    Fetcher& fetcher, kv::BlockPool& pool, const kv::PromptChain& rule, const fleet::v1::PeerPrefix& peer,
    const std::string& request_id, std::span<const TokenId> tokens, std::span<const kv::BlockHash> chain,
    double wait, double saved, Callbacks callbacks, const telemetry::TraceContext& trace) {
  const int64_t target = peer.blocks();
  BATON_CHECK(target * kBlockTokens < std::ssize(tokens) && target <= std::ssize(chain));
  auto prefetch =
      std::unique_ptr<PrefixPrefetch>(new PrefixPrefetch(pool, rule, tokens, target, std::move(callbacks)));
  if (!prefetch->kv_.Reserve(prefetch->tokens_, target * kBlockTokens).ok()) return nullptr;
  prefetch->here_ = prefetch->kv_.cached_tokens() / kBlockTokens;
  if (prefetch->here_ >= target) return nullptr;
  prefetch->fetch_ =
      fetcher.Start(peer, request_id, chain.subspan(prefetch->here_, target - prefetch->here_),
                    prefetch->kv_.blocks().subspan(prefetch->here_), wait, saved,
                    {.leased =
                         [raw = prefetch.get(), &fetcher](std::span<const kv::HeldLease> leases) {
                           raw->kv_.Inherit(leases, raw->here_, fetcher.Now());
                         },
                     .committed = [raw = prefetch.get()](int64_t blocks) { raw->OnCommitted(blocks); },
                     .ended = [raw = prefetch.get()](const absl::Status&) { raw->OnEnded(); }},
                    trace);
  return prefetch;
}

void PrefixPrefetch::Release() {
  fetch_->Release();
  if (!fetch_->writing()) kv_.Release();
}

void PrefixPrefetch::OnCommitted(int64_t blocks) {
  kv_.Computed(tokens_, (here_ + blocks) * kBlockTokens);
  callbacks_.prefetched(here_ + blocks);
}

void PrefixPrefetch::OnEnded() {
  kv_.Release();
  callbacks_.ended();
}

}  // namespace baton::fetch
