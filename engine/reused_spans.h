// ReusedSpans: the reusable spans of one prompt while it is computed: their canonical sequences with the
// blocks that hold them, of which those that are missing are computed as a prompt's are, and from which their
// tokens land in the prompt's own blocks (docs/chunk-reuse.md). It plans nothing: its owner, a scheduler,
// asks what is to be computed and says what was. Release is idempotent, and the destructor calls it. Engine
// thread only; engine and prompt outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "engine/engine.h"
#include "engine/sequence_kv.h"
#include "protocol/prompt_chain.h"

namespace baton::engine {

class ReusedSpans {
 public:
  // chain: of the prompt; its spans passed CheckReusable.
  ReusedSpans(Engine& engine, const kv::PromptChain& chain, std::span<const TokenId> prompt);

  // How canonical sequences are hashed; and of one span: its tokens, their hashes, and the end of what lands.
  const kv::PromptChain& chain() const { return chain_; }
  std::span<const TokenId> canonical(size_t span) const { return spans_[span].canonical; }
  std::span<const kv::BlockHash> hashes(size_t span) const { return spans_[span].hashes; }
  int64_t landed_end(size_t span) const { return spans_[span].landed.end; }

  // The number of landed tokens at positions of at least `from` whose canonical KV is in the cache now.
  int64_t CachedTokens(int64_t from) const;

  // Takes blocks for the spans that have tokens to land at `computed` or behind it, the cached ones and room
  // for the others. All or nothing: RESOURCE_EXHAUSTED leaves the pool as it was.
  absl::Status Reserve(int64_t computed);
  void Release();
  // CachedTokens when blocks were reserved.
  int64_t FoundTokens(int64_t from) const;

  // Rows of canonical sequences that are still to be computed.
  int64_t remaining() const;
  // The number of the first span from `span` on that has such rows, or size().
  size_t NextMissing(size_t span) const;
  size_t size() const { return spans_.size(); }
  int64_t remaining(size_t span) const;
  int64_t computed(size_t span) const;
  // The next `rows` of them, for a step, and that they were computed.
  BatchRows RowsOf(size_t span, int64_t rows) const;
  void Computed(size_t span, int64_t rows);

  // Lands tokens in the prompt's `blocks`, at most `most` of one span, the first that is computed and has
  // some left. Returns how many: 0 if there is none. A span whose tokens have all landed is given back to the
  // cache.
  int64_t Land(int64_t most, std::span<const BlockId> blocks);

  // Behind the tokens at `position` that land and have landed; `position` itself if its token does not land,
  // or not all of its span have.
  int64_t SkipLanded(int64_t position) const;
  // Where the run of the prompt's own rows ends that begins at `position`: there itself if its token lands.
  int64_t EndOfRows(int64_t position) const;
  // How many rows the prompt has from `position` on.
  int64_t OwnRows(int64_t position) const;

 private:
  struct Span {
    kv::ReusableSpan span;
    kv::ReusableSpan landed;
    std::vector<TokenId> canonical;
    std::vector<kv::BlockHash> hashes;  // of it
    std::unique_ptr<SequenceKv> kv;     // null: not reserved, or landed
    int64_t found = 0;                  // canonical tokens, when blocks were reserved
    int64_t next = 0;                   // the first token that has not landed
  };
  // The number of landed tokens at positions of at least `from` among the first `canonical` of their
  // sequence.
  static int64_t LandedOf(const Span& span, int64_t from, int64_t canonical);
  // The first span whose landed part ends behind `position`.
  size_t At(int64_t position) const;

  Engine* engine_;
  kv::PromptChain chain_;  // of canonical sequences
  int64_t prompt_tokens_;
  std::vector<Span> spans_;
};

}  // namespace baton::engine
