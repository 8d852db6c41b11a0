#include "lab/simulate/disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/seed.h"
#include "tests/unit/lab/simulate/scene.h"

namespace baton::lab::simulate {
namespace {

FleetModel WithDisk(int64_t blocks) {
  FleetModel model;
  model.disk_bytes = blocks * model.block_bytes();
  model.disk_bandwidth = 20e9;
  return model;
}

// A prompt of `chain` passes through the pool: computed, or found there, and released.
void Use(kv::BlockPool& pool, const std::vector<kv::BlockHash>& chain) {
  std::vector<BlockId> blocks = pool.AcquirePrefix(chain);
  auto rest = pool.Allocate(std::ssize(chain) - std::ssize(blocks));
  ASSERT_TRUE(rest.ok()) << rest.status();
  blocks.insert(blocks.end(), rest->begin(), rest->end());
  for (size_t i = 0; i < chain.size(); ++i) pool.Publish(blocks[i], chain[i]);
  pool.Release(blocks);
}

std::vector<kv::BlockHash> Chain(uint64_t first, int blocks) {
  std::vector<kv::BlockHash> chain;
  for (int i = 0; i < blocks; ++i) chain.push_back(BlockOf(first + static_cast<uint64_t>(i)));
  return chain;
}

// The blocks that the router knows of.
class Told {
 public:
  void Take(Disk& disk) {
    const auto changes = disk.TakeChanges();
    for (const auto& hash : changes.stored) here_.insert(hash);
    for (const auto& hash : changes.evicted) here_.erase(hash);
  }
  size_t size() const { return here_.size(); }

 private:
  std::set<kv::BlockHash> here_;
};

TEST(SimulatedDiskTest, KeepsWhatThePoolForgetsAndReadsOneAfterTheOther) {
  const FleetModel model = WithDisk(100);
  Events events;
  kv::BlockPool pool(8);
  Disk disk(model, model.disk_blocks(), events, pool);
  const auto chain = Chain(1, 6);
  // Used twice: surely worth a write.
  Use(pool, chain);
  Use(pool, chain);
  for (int i = 0; i < 6; ++i) {  // as fast as writes can follow
    disk.WriteBehind();
    events.In(1, [] {});
    events.Step();
  }
  EXPECT_EQ(disk.Match(chain), 6);
  Use(pool, Chain(100, 8));  // all others have to go
  EXPECT_EQ(pool.MatchPrefix(chain), 0);
  EXPECT_EQ(disk.Match(chain), 6);

  const double block = static_cast<double>(model.block_bytes()) / model.disk_bandwidth;
  const double begin = events.now();
  EXPECT_NEAR(disk.Read(std::span(chain).first(2)) - begin, 2 * block + model.disk_latency, 1e-9);
  EXPECT_NEAR(disk.Read(std::span(chain).subspan(2)) - begin, 6 * block + model.disk_latency, 1e-9);
}

TEST(SimulatedDiskTest, DropsTheOldestAfterASecondChanceAndTellsSo) {
  const FleetModel model = WithDisk(4);
  Events events;
  kv::BlockPool pool(100);
  Disk disk(model, model.disk_blocks(), events, pool);
  Told told;
  const auto write = [&](const std::vector<kv::BlockHash>& chain) {
    Use(pool, chain);
    Use(pool, chain);
    for (int i = 0; i < 20; ++i) {
      disk.WriteBehind();
      events.In(1, [] {});
      events.Step();
    }
    told.Take(disk);
    EXPECT_LE(told.size(), 4u);
  };
  const auto first = Chain(1, 2), second = Chain(11, 2), third = Chain(21, 2), fourth = Chain(31, 2);
  write(first);
  write(second);
  EXPECT_EQ(told.size(), 4u);
  disk.Read(first);
  write(third);  // instead of the second, which nobody used
  EXPECT_EQ(disk.Match(first), 2);
  EXPECT_EQ(disk.Match(second), 0);
  EXPECT_EQ(disk.Match(third), 2);
  write(fourth);
  EXPECT_EQ(disk.Match(first), 0) << "it had its chance";
  EXPECT_EQ(told.size(), 4u);
}

// Where writes can't follow, blocks are lost to the disk, and no request waits.
TEST(SimulatedDiskTest, AWriteThatIsSlowerThanComputingIsNotTried) {
  FleetModel model = WithDisk(100);
  model.disk_bandwidth = static_cast<double>(model.block_bytes()) /
                         (model.prefill_token * static_cast<double>(model.block_tokens));
  Events events;
  kv::BlockPool pool(8);
  Disk disk(model, model.disk_blocks(), events, pool);
  const auto chain = Chain(1, 6);
  Use(pool, chain);
  Use(pool, chain);
  disk.WriteBehind();
  EXPECT_EQ(disk.Match(chain), 0);
}

TEST(SimulatedDiskTest, AWorkingSetBeyondTheMemoryIsFoundOnDisks) {
  constexpr uint64_t kSeed = 5;
  FleetModel model;
  model.prefill_workers = 2;
  model.decode_workers = 2;
  model.prefill_blocks = 60;
  model.decode_blocks = 200;
  // 40 conversations of 5 turns at a time: some 600 blocks.
  const std::vector<Request> load = LoadMaker(kSeed).Sessions(100, 1, 5, 20);
  RunResult run;
  const Measures without = PlayPolicy("prefix_affinity", model, load, kSeed);
  model.disk_bytes = 4000 * model.block_bytes();
  model.disk_bandwidth = 20e9;
  const Measures with = PlayPolicy("prefix_affinity", model, load, kSeed, &run);
  EXPECT_EQ(without.loaded_share, 0);
  EXPECT_GT(with.loaded_share, 0.1);
  EXPECT_GT(with.hit_rate, without.hit_rate + 0.1);
  EXPECT_LE(with.hit_share, 1 + 1e-9);
  EXPECT_LT(with.ttft.mean, without.ttft.mean);
  for (const RequestRecord& record : run.records) {
    ASSERT_LE(record.loaded_tokens + record.fetched_tokens, record.cached_tokens);
    ASSERT_GE(record.first_token, record.request->arrival);
  }
}

// The smaller the disk, the likelier that what is to be read is dropped by what is written for it.
TEST(SimulatedDiskTest, EveryRequestEndsUnderEveryPolicy) {
  const uint64_t seed = TestSeed() % 1'000'000;
  SCOPED_TRACE(seed);
  for (const int64_t blocks : {6, 20, 100}) {
    FleetModel model = WithDisk(blocks);
    model.prefill_workers = model.decode_workers = 2;
    model.prefill_blocks = 40;
    model.decode_blocks = 200;
    const std::vector<Request> load = LoadMaker(seed).Sessions(60, 4, 4, 3);
    for (const std::string& name : PolicyNames()) {
      RunResult one, other;
      PlayPolicy(name, model, load, seed, &one);
      PlayPolicy(name, model, load, seed, &other);
      for (size_t i = 0; i < load.size(); ++i) ASSERT_EQ(one.records[i].end, other.records[i].end) << name;
    }
  }
}

}  // namespace
}  // namespace baton::lab::simulate
