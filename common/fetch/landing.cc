#include "common/fetch/landing.h"

#include <utility>

#include "common/base/check.h"

namespace baton::fetch {

Landing::Landing(kv::BlockPool& pool, const kv::BlockHash& root, std::span<const TokenId> tokens,
                 int64_t target, Callbacks callbacks)
    : tokens_(tokens.begin(), tokens.begin() + target * kBlockTokens + 1),
      target_(target),
      callbacks_(std::move(callbacks)),
      kv_(pool, root) {}

std::unique_ptr<Landing> Landing::Begin(Fetcher& fetcher, kv::BlockPool& pool, const kv::BlockHash& root,
                                        const v1::PeerPrefix& peer, const std::string& request_id,
                                        std::span<const TokenId> tokens, std::span<const kv::BlockHash> chain,
                                        double wait, double saved, Callbacks callbacks) {
  const int64_t target = peer.blocks();
  BATON_CHECK(target * kBlockTokens < std::ssize(tokens) && target <= std::ssize(chain));
  auto landing = std::unique_ptr<Landing>(new Landing(pool, root, tokens, target, std::move(callbacks)));
  if (!landing->kv_.Reserve(landing->tokens_, target * kBlockTokens).ok()) return nullptr;
  landing->here_ = landing->kv_.cached_tokens() / kBlockTokens;
  if (landing->here_ >= target) return nullptr;
  landing->fetch_ =
      fetcher.Start(peer, request_id, chain.subspan(landing->here_, target - landing->here_),
                    landing->kv_.blocks().subspan(landing->here_), wait, saved,
                    {.committed = [raw = landing.get()](int64_t blocks) { raw->OnCommitted(blocks); },
                     .ended = [raw = landing.get()](const absl::Status&) { raw->OnEnded(); }});
  return landing;
}

void Landing::Release() {
  fetch_->Release();
  if (!fetch_->writing()) kv_.Release();
}

void Landing::OnCommitted(int64_t blocks) {
  kv_.Computed(tokens_, (here_ + blocks) * kBlockTokens);
  callbacks_.landed(here_ + blocks);
}

void Landing::OnEnded() {
  kv_.Release();
  callbacks_.ended();
}

}  // namespace baton::fetch
