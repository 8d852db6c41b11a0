// PrefixPrefetch: a fetch of the leading blocks of a prompt that waits for its turn. What arrives is
// published in the prefix cache, block by block: the prompt finds it there when its turn comes, and so does
// every other prompt of its tenant. The prefetch holds the blocks only while it runs, and then leaves them to
// the cache: a prompt that waits holds nothing. Release is idempotent; until writing() is false the object
// stays. Engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/sequence_kv.h"
#include "transfer/fetch/fetcher.h"

namespace baton::fetch {

class PrefixPrefetch {
 public:
  struct Callbacks {
    // The prompt's blocks [0, blocks) are in the cache.
    std::function<void(int64_t blocks)> prefetched;
    // Once, unless released before. Must not destroy the prefetch.
    std::function<void()> ended;
  };

  // The blocks [0, peer.blocks()) of `tokens`, as far as they are not here: at least one, and one token
  // follows them. `rule` is how they are hashed, `chain` their hashes. Null if there is no room for them.
  // `trace`: of the prompt's request.
  static std::unique_ptr<PrefixPrefetch> Begin(Fetcher& fetcher, kv::BlockPool& pool,
                                               const kv::PromptChain& rule, const fleet::v1::PeerPrefix& peer,
                                               const std::string& request_id, std::span<const TokenId> tokens,
                                               std::span<const kv::BlockHash> chain, double wait,
                                               double saved, Callbacks callbacks,
                                               const telemetry::TraceContext& trace = {});

  void Release();
  bool writing() const { return fetch_->writing(); }
  bool running() const { return fetch_->running(); }

  const Fetch& fetch() const { return *fetch_; }
  // How many blocks of the prompt will be here if the peer has them all.
  int64_t target() const { return target_; }

 private:
  PrefixPrefetch(kv::BlockPool& pool, const kv::PromptChain& rule, std::span<const TokenId> tokens,
                 int64_t target, Callbacks callbacks);
  void OnCommitted(int64_t blocks);
  void OnEnded();

  const std::vector<TokenId> tokens_;
  const int64_t target_;
  int64_t here_ = 0;  // blocks that were in the cache already
  Callbacks callbacks_;
  engine::SequenceKv kv_;
  std::unique_ptr<Fetch> fetch_;
};

}  // namespace baton::fetch
