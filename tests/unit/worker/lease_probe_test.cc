#include "worker/lease_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/kv/index/block_pool.h"

namespace baton::worker {
namespace {

using ::testing::HasSubstr;

TEST(LeaseProbeTest, ShowsWhatThePoolCounts) {
  telemetry::Metrics metrics;
  LeaseProbe probe(metrics);
  kv::BlockPool pool(8);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  const std::vector<kv::BlockHash> chain =
      kv::HashChain(root, std::vector<TokenId>(3 * kBlockTokens, TokenId(7)));
  const std::vector<BlockId> blocks = *pool.Allocate(3);
  for (size_t i = 0; i < blocks.size(); ++i) pool.Publish(blocks[i], chain[i]);
  pool.Lease(blocks, 0, kv::LeaseClass::k5m, root, absl::UnixEpoch());
  pool.Release(blocks);
  probe.Observe(pool);
  probe.Observe(pool);
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_cache_lease_blocks_total{event=\"granted\",ttl=\"5m\"} 3"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_cache_lease_blocks_total{event=\"granted\",ttl=\"1h\"} 0"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_kv_leased_blocks 3"));
  pool.Release(pool.AcquirePrefix({chain.data(), 1}));
  const std::vector<BlockId> taken = *pool.Allocate(6);  // five are free
  pool.Advance(absl::UnixEpoch() + absl::Hours(1));
  probe.Observe(pool);
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_cache_lease_blocks_total{event=\"renewed\",ttl=\"5m\"} 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_cache_lease_blocks_total{event=\"broken\",ttl=\"5m\"} 1"));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("baton_cache_lease_blocks_total{event=\"expired_unused\",ttl=\"5m\"} 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_kv_leased_blocks 0"));
  pool.Release(taken);
}

}  // namespace
}  // namespace baton::worker
