// Costs of KV bookkeeping on a prompt of 100,000 tokens: hashing it, matching it, taking and giving back its
// blocks.
#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "engine/kv/index/block_pool.h"

namespace baton::kv {
namespace {

constexpr int kTokens = 100'000;
constexpr int kBlocks = kTokens / kBlockTokens;

std::vector<TokenId> Prompt() {
  std::vector<TokenId> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(TokenId(i * 7919 % 128'256));
  return tokens;
}

std::vector<BlockHash> Chain() { return HashChain(RootHash("model", TenantSalt("tenant")), Prompt()); }

void Publish(BlockPool& pool, std::span<const BlockHash> chain) {
  const auto blocks = pool.Allocate(std::ssize(chain));
  BATON_CHECK(blocks.ok()) << blocks.status();
  for (size_t i = 0; i < chain.size(); ++i) pool.Publish((*blocks)[i], chain[i]);
  pool.Release(*blocks);
}

void BM_HashChain(benchmark::State& state) {
  const std::vector<TokenId> prompt = Prompt();
  const BlockHash root = RootHash("model", TenantSalt("tenant"));
  for (auto _ : state) benchmark::DoNotOptimize(HashChain(root, prompt));
  state.SetItemsProcessed(state.iterations() * kBlocks);
}
BENCHMARK(BM_HashChain)->Unit(benchmark::kMillisecond);

// As decoding does it, once in 16 tokens.
void BM_ChildHash(benchmark::State& state) {
  const std::vector<TokenId> prompt = Prompt();
  BlockHash parent = RootHash("model", TenantSalt("tenant"));
  for (auto _ : state) parent = ChildHash(parent, std::span(prompt).first(kBlockTokens));
  benchmark::DoNotOptimize(parent);
}
BENCHMARK(BM_ChildHash)->Unit(benchmark::kMicrosecond);

void BM_MatchPrefix(benchmark::State& state) {
  BlockPool pool(4 * kBlocks);
  const auto chain = Chain();
  Publish(pool, chain);
  for (auto _ : state) {
    const int64_t length = pool.MatchPrefix(chain);
    BATON_CHECK_EQ(length, kBlocks);
  }
  state.SetItemsProcessed(state.iterations() * kBlocks);
}
BENCHMARK(BM_MatchPrefix)->Unit(benchmark::kMicrosecond);

void BM_AcquireAndReleasePrefix(benchmark::State& state) {
  BlockPool pool(4 * kBlocks);
  const auto chain = Chain();
  Publish(pool, chain);
  for (auto _ : state) pool.Release(pool.AcquirePrefix(chain));
  BATON_CHECK_EQ(pool.counts().cached, kBlocks);
  state.SetItemsProcessed(state.iterations() * kBlocks);
}
BENCHMARK(BM_AcquireAndReleasePrefix)->Unit(benchmark::kMicrosecond);

void BM_AllocateAndRelease(benchmark::State& state) {
  BlockPool pool(2 * kBlocks);
  for (auto _ : state) pool.Release(*pool.Allocate(kBlocks));
  state.SetItemsProcessed(state.iterations() * kBlocks);
}
BENCHMARK(BM_AllocateAndRelease)->Unit(benchmark::kMicrosecond);

// A full pool: every block taken evicts another, and is published in its turn.
void BM_AllocatePublishAndEvict(benchmark::State& state) {
  BlockPool pool(kBlocks);
  const auto chain = Chain();
  for (auto _ : state) {
    Publish(pool, chain);
    benchmark::DoNotOptimize(pool.TakeChanges());
  }
  state.SetItemsProcessed(state.iterations() * kBlocks);
}
BENCHMARK(BM_AllocatePublishAndEvict)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton::kv
