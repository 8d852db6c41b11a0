#include "router/index/prefix_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "protocol/block_hash.h"
#include "tests/fuzz/prefix_index_operations.h"

namespace baton::router::index {
namespace {

const absl::Time kNow = absl::UnixEpoch();

std::vector<kv::BlockHash> Chain(int blocks, int32_t first_token = 0, const std::string& salt = "tenant") {
  std::vector<TokenId> tokens;
  for (int i = 0; i < blocks * kBlockTokens; ++i) tokens.emplace_back(first_token + i);
  return kv::HashChain(kv::RootHash("model", kv::TenantSalt(salt)), tokens);
}

std::span<const kv::BlockHash> First(const std::vector<kv::BlockHash>& chain, size_t count) {
  return std::span(chain).first(count);
}

void Settle(PrefixIndex& index, absl::Time now) {
  while (index.Maintain(now)) {
  }
}

TEST(PrefixIndexTest, FindsTheLongestRunOfEveryWorker) {
  PrefixIndex index({});
  const WorkerSlot a = *index.Join(), b = *index.Join(), c = *index.Join();
  const auto chain = Chain(100), other = Chain(100, 7);
  index.Store(a, First(chain, 100));
  index.Store(b, First(chain, 40));
  index.Store(c, std::span(chain).subspan(1));  // all but the first: nothing from the start
  Matches matches;
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(a), 100u);
  EXPECT_EQ(matches.of(b), 40u);
  EXPECT_EQ(matches.of(c), 0u);
  EXPECT_EQ(matches.longest, 100u);
  index.Match(other, &matches);
  EXPECT_EQ(matches.longest, 0u);
  EXPECT_EQ(matches.of(a), 0u);
  index.Match({}, &matches);
  EXPECT_EQ(matches.longest, 0u);
}

TEST(PrefixIndexTest, AnotherTenantsSaltFindsNothing) {
  PrefixIndex index({});
  const WorkerSlot worker = *index.Join();
  index.Store(worker, Chain(64, 0, "tenant a"));
  Matches matches;
  index.Match(Chain(64, 0, "tenant a"), &matches);
  EXPECT_EQ(matches.of(worker), 64u);
  index.Match(Chain(64, 0, "tenant b"), &matches);
  EXPECT_EQ(matches.of(worker), 0u);
}

TEST(PrefixIndexTest, AWorkerThatLeavesIsGoneAtOnceAndItsSlotComesBackClean) {
  PrefixIndex index({});
  const WorkerSlot stays = *index.Join(), leaves = *index.Join();
  const auto chain = Chain(1000);
  index.Store(stays, First(chain, 10));
  index.Store(leaves, chain);
  index.Leave(leaves);
  Matches matches;
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(leaves), 0u);
  EXPECT_EQ(matches.longest, 10u);
  EXPECT_EQ(index.stats().pairs, 10);
  EXPECT_NE(*index.Join(), leaves) << "its entries are still there";
  Settle(index, kNow);
  EXPECT_EQ(index.stats().blocks, 10);
  EXPECT_EQ(*index.Join(), leaves);
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(leaves), 0u);
  index.CheckConsistency();
}

TEST(PrefixIndexTest, GivesOutEverySlotThereIsAndNoMore) {
  PrefixIndex index({});
  const auto chain = Chain(1);
  for (uint32_t i = 0; i < SlotSets::kMaxSlots; ++i) {
    const auto slot = index.Join();
    ASSERT_TRUE(slot.has_value());
    index.Store(*slot, chain);
  }
  EXPECT_FALSE(index.Join().has_value());
  index.Leave(WorkerSlot(77));
  EXPECT_EQ(index.Join(), WorkerSlot(77)) << "swept up on demand";
  EXPECT_EQ(index.stats().pairs, SlotSets::kMaxSlots - 1);
}

TEST(PrefixIndexTest, ABurstOfEqualPromptsFindsItsOwnTail) {
  PrefixIndex index({});
  const WorkerSlot worker = *index.Join();
  const auto chain = Chain(100);
  index.Store(worker, First(chain, 20));
  index.Speculate(worker, chain, kNow + absl::Seconds(5));
  Matches matches;
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(worker), 100u);
  EXPECT_EQ(index.stats().speculative, 80);
  // The worker confirms some, denies one, and says nothing of the rest.
  index.Store(worker, First(chain, 50));
  index.Evict(worker, std::span(chain).subspan(99));
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(worker), 99u);
  Settle(index, kNow + absl::Seconds(4));
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(worker), 99u);
  // Another request prolongs part of it.
  index.Speculate(worker, First(chain, 60), kNow + absl::Seconds(9));
  Settle(index, kNow + absl::Seconds(5));
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(worker), 60u);
  Settle(index, kNow + absl::Seconds(9));
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(worker), 50u);
  EXPECT_EQ(index.stats().speculative, 0);
  index.CheckConsistency();
}

TEST(PrefixIndexTest, TellsWhatAWorkerHasSaidFromWhatIsBelievedOfIt) {
  PrefixIndex index({});
  const WorkerSlot a = *index.Join(), b = *index.Join();
  const auto chain = Chain(100);
  index.Store(a, First(chain, 40));
  index.Speculate(a, std::span(chain).subspan(40), kNow + absl::Seconds(5));
  index.Speculate(b, chain, kNow + absl::Seconds(5));
  EXPECT_EQ(index.Confirmed(a, chain), 40);
  EXPECT_EQ(index.Confirmed(a, First(chain, 30)), 30);
  EXPECT_EQ(index.Confirmed(a, First(chain, 41)), 40);
  EXPECT_EQ(index.Confirmed(a, {}), 0);
  EXPECT_EQ(index.Confirmed(b, chain), 0);
  // Its own word comes, block by block.
  index.Store(a, std::span(chain).subspan(40, 30));
  EXPECT_EQ(index.Confirmed(a, chain), 70);
  index.Store(a, chain);
  EXPECT_EQ(index.Confirmed(a, chain), 100);
  index.Leave(a);
  EXPECT_EQ(index.Confirmed(a, chain), 0);
}

TEST(PrefixIndexTest, ASpeculationOutlivesNoWorker) {
  PrefixIndex index({});
  const auto chain = Chain(10);
  const WorkerSlot first = *index.Join();
  index.Speculate(first, chain, kNow + absl::Seconds(1));
  index.Leave(first);
  Settle(index, kNow);
  const WorkerSlot second = *index.Join();
  ASSERT_EQ(second, first);
  index.Store(second, chain);
  Settle(index, kNow + absl::Seconds(2));
  Matches matches;
  index.Match(chain, &matches);
  EXPECT_EQ(matches.of(second), 10u) << "the first one's speculation expired, not the second one's blocks";
}

TEST(PrefixIndexTest, SpeculationsBeyondTheBoundGoEarly) {
  PrefixIndex index({.max_speculative = 100});
  const WorkerSlot worker = *index.Join();
  for (int i = 0; i < 50; ++i) index.Speculate(worker, Chain(10, i), kNow + absl::Seconds(i));
  EXPECT_LE(index.stats().speculative, 100);
  EXPECT_EQ(index.stats().pairs, index.stats().speculative);
  Matches matches;
  index.Match(Chain(10, 49), &matches);
  EXPECT_EQ(matches.of(worker), 10u) << "the latest to expire is still there";
}

TEST(PrefixIndexTest, TheMemoryCapHoldsAndWhatIsUsedStays) {
  constexpr int64_t kCap = 8 << 20;
  PrefixIndex index({.max_bytes = kCap});
  const WorkerSlot worker = *index.Join();
  const auto hot = Chain(64, 1'000'000);
  index.Store(worker, hot);
  Matches matches;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i) {
    index.Store(worker, Chain(200, static_cast<int32_t>(random() % 1'000'000'000)));
    index.Match(hot, &matches);
    ASSERT_EQ(matches.of(worker), 64u) << "after " << i;
    ASSERT_LE(index.stats().bytes, kCap);
  }
  EXPECT_GT(index.stats().evicted_blocks, 300'000);
  EXPECT_GT(index.stats().bytes, kCap * 8 / 10) << "the memory is used";
  index.CheckConsistency();
}

TEST(PrefixIndexTest, TheMemoryCapHoldsForLargeSetsToo) {
  constexpr int64_t kCap = 3 << 20;
  PrefixIndex index({.max_bytes = kCap});
  std::vector<WorkerSlot> workers;
  for (int i = 0; i < 3000; ++i) workers.push_back(*index.Join());
  for (int prompt = 0; prompt < 30; ++prompt) {
    const auto chain = Chain(64, prompt * 1'000'000);
    for (const WorkerSlot worker : workers) index.Store(worker, chain);
    // Shrinking sets may take one chunk per size beyond it.
    ASSERT_LE(index.stats().bytes, kCap + 11 * 65536);
  }
  EXPECT_GT(index.stats().evicted_blocks, 0);
  index.CheckConsistency();
}

TEST(PrefixIndexTest, MemoryComesBackAfterADayOfWorkersComingAndGoing) {
  PrefixIndex index({});
  std::mt19937 random(11);
  std::vector<WorkerSlot> workers;
  int64_t after_first_round = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 50; ++i) {
      workers.push_back(*index.Join());
      index.Store(workers.back(), Chain(32, 5));  // everybody's system prompt
      for (int prompt = 0; prompt < 4; ++prompt) {
        index.Store(workers.back(), Chain(100, static_cast<int32_t>(random() % 1'000'000'000)));
      }
    }
    std::shuffle(workers.begin(), workers.end(), random);
    while (workers.size() > 50) {
      index.Leave(workers.back());
      workers.pop_back();
    }
    Settle(index, kNow);
    if (round == 1) after_first_round = index.stats().bytes;
  }
  EXPECT_LE(index.stats().bytes, after_first_round * 5 / 4);
  for (const WorkerSlot worker : workers) index.Leave(worker);
  Settle(index, kNow);
  const PrefixIndex::Stats stats = index.stats();
  EXPECT_EQ(stats.pairs, 0);
  EXPECT_EQ(stats.blocks, 0);
  EXPECT_EQ(stats.workers, 0);
  EXPECT_LT(stats.bytes, 4 << 20);
  index.CheckConsistency();
}

TEST(PrefixIndexTest, ReadersAndWritersTogether) {
  PrefixIndex index({});
  std::atomic<bool> stop = false;
  const auto chain = Chain(500);
  const WorkerSlot fixed = *index.Join();
  index.Store(fixed, chain);
  std::thread writer([&] {
    for (int round = 0; round < 200; ++round) {
      const WorkerSlot worker = *index.Join();
      index.Store(worker, First(chain, 1 + round));
      index.Speculate(worker, chain, kNow + absl::Seconds(round));
      index.Evict(worker, First(chain, 1));
      index.Leave(worker);
      index.Maintain(kNow + absl::Seconds(round));
    }
    stop = true;
  });
  std::thread reader([&] {
    Matches matches;
    while (!stop) {
      index.Match(chain, &matches);
      ASSERT_EQ(matches.of(fixed), 500u);
    }
  });
  writer.join();
  reader.join();
  Settle(index, kNow + absl::Hours(1));
  EXPECT_EQ(index.stats().pairs, 500);
  index.CheckConsistency();
}

TEST(PrefixIndexTest, AgreesWithTheModelOverRandomOperations) {
  int64_t done = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(1500);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const auto run = RunPrefixIndexOperations(bytes);
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status();
    done += *run;
  }
  RecordProperty("operations", std::to_string(done));
}

}  // namespace
}  // namespace baton::router::index
