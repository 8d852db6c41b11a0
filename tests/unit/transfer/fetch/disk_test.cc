// The disk as a peer: what becomes cached goes there, what is evicted comes back from there, and whatever the
// disk does costs a computation at most. A real loop, an engine of a small model, files in memory.
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "engine/kv/tier/disk_store.h"
#include "engine/kv/tier/patient_folder.h"
#include "engine/kv/tier/shared_store.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/patience.h"
#include "tests/unit/transfer/fetch/two_workers.h"
#include "transfer/fetch/disk_client.h"
#include "transfer/fetch/disk_source.h"
#include "transfer/fetch/prefix_prefetch.h"
#include "transfer/fetch/write_behind.h"

namespace baton::fetch {
namespace {

class DiskTest : public TwoWorkersTest {
 protected:
  DiskTest() {
    identity_.block_bytes = here_->store().layout().block_bytes();
    OpenTier();
  }
  ~DiskTest() override { CloseTier(); }

  void OpenTier(bool always = true, double compute_seconds = 1, int64_t write_slots = 64) {
    loop_ = std::make_unique<engine::Loop>(1024);
    auto store = kv::tier::DiskStore::Open(kv::tier::MakeFaultyFolder(disk_.OpenFolder(), faults_),
                                           {.bytes = 400 * identity_.slot_bytes(), .identity = identity_});
    tier_ = std::make_unique<kv::tier::DiskTier>(
        *std::move(store), kv::tier::TierOptions{.write_bytes = write_slots * identity_.slot_bytes()},
        clock_);
    // Two blocks in a chunk.
    disk_client_ =
        std::make_unique<DiskClient>(DiskClient::Options{.layers = here_->store().layout().layers,
                                                         .max_chunk_bytes = 2 * identity_.block_bytes,
                                                         .ahead = 2},
                                     *loop_, *tier_);
    loads_ = std::make_unique<Fetcher>(
        FetcherOptions{.incarnation = Incarnation(77), .always = always, .longest = longest_}, *here_,
        receiver_, *disk_client_, clock_, load_probe_);
    source_ = std::make_unique<DiskSource>(*tier_, *loads_);
    write_behind_ = std::make_unique<WriteBehind>(
        WriteBehindOptions{.compute_seconds = compute_seconds, .always = always}, *here_, *tier_, *loads_,
        clock_, disk_probe_);
    loop_->Start([] { return false; });
  }
  void CloseTier() {
    loop_->Stop();
    write_behind_.reset();
    prefetch_.reset();
    tier_.reset();
    loop_.reset();
  }
  void Write() {
    loop_->Run([&] { write_behind_->Flush(Scaled(absl::Seconds(60))); });
    tier_->Flush(absl::InfiniteDuration());
    loop_->Run([&] { write_behind_->Step(false); });  // for the metrics
  }
  // The process is another one: its pool is empty.
  void Restart() {
    CloseTier();
    here_ = MakeEngine(24);
    OpenTier();
  }
  // Loads what the disk has of the first `blocks` blocks; how many are in the cache then.
  int64_t Load(const std::vector<TokenId>& tokens, int64_t blocks, const std::string& salt = kSalt) {
    absl::Notification ended;
    int64_t prefetched = 0;
    const auto chain = Chain(*here_, tokens, salt);
    bool begun = false;
    loop_->Run([&] {
      const int64_t here = here_->pool().MatchPrefix(chain);
      const fleet::v1::PeerPrefix disk =
          source_->Find(std::span(chain).first(static_cast<size_t>(blocks)), here);
      if (disk.blocks() == 0 || !loads_->Worthwhile(disk, disk.blocks() - here, 0, saved_)) return;
      prefetch_ = PrefixPrefetch::Begin(
          *loads_, here_->pool(), here_->RootFor(kv::TenantSalt(salt)), disk, "request", tokens, chain, 0,
          saved_,
          {.prefetched = [&](int64_t count) { prefetched = count; }, .ended = [&] { ended.Notify(); }});
      begun = prefetch_ != nullptr;
    });
    if (!begun) return 0;
    ended.WaitForNotification();
    loop_->Run([&] { prefetch_.reset(); });
    return prefetched;
  }
  bool HasDiskMetric(const std::string& line) const {
    return disk_metrics_.Text().find(line + "\n") != std::string::npos;
  }

  kv::tier::Identity identity_;
  kv::tier::MemoryDisk disk_;
  kv::tier::Faults faults_;
  telemetry::Metrics disk_metrics_;
  FetchProbe load_probe_{disk_metrics_};
  DiskProbe disk_probe_{disk_metrics_};
  double saved_ = 100;  // seconds
  absl::Duration longest_ = Scaled(absl::Seconds(60));
  std::unique_ptr<engine::Loop> loop_;
  std::unique_ptr<kv::tier::DiskTier> tier_;
  std::unique_ptr<DiskClient> disk_client_;
  std::unique_ptr<Fetcher> loads_;
  std::unique_ptr<DiskSource> source_;
  std::unique_ptr<WriteBehind> write_behind_;
  std::unique_ptr<PrefixPrefetch> prefetch_;
  const std::vector<TokenId> tokens_ = Tokens(3, 9);
};

TEST_F(DiskTest, WhatWasCachedComesBackAfterARestart) {
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_TRUE(HasDiskMetric("baton_disk_written_blocks_total 9"));
  Restart();
  EXPECT_EQ(Load(tokens_, 9), 9);
  ExpectHeldRight(*here_, tokens_, 9);
  EXPECT_TRUE(HasDiskMetric("baton_disk_loads_total{outcome=\"complete\"} 1")) << disk_metrics_.Text();
  EXPECT_TRUE(HasDiskMetric("baton_disk_loaded_blocks_total 9"));
  EXPECT_EQ(here_->pool().counts().held, 0);
  // Another tenant's are other blocks.
  EXPECT_EQ(Load(tokens_, 9, "another salt"), 0);
}

TEST_F(DiskTest, WhatIsEvictedIsWrittenBeforeItsBytesAreReused) {
  Hold(*here_, tokens_, 9);
  // No step in between: the pool of 24 blocks is filled by others.
  Hold(*here_, Tokens(4, 20), 20);
  ASSERT_LT(here_->pool().MatchPrefix(Chain(*here_, tokens_)), 9);
  Write();
  EXPECT_EQ(Load(tokens_, 9), 9);
  ExpectHeldRight(*here_, tokens_, 9);
}

TEST_F(DiskTest, ACorruptRecordEndsTheLoadBehindTheGoodOnes) {
  Hold(*here_, tokens_, 9);
  Write();
  Restart();
  auto& bytes = disk_.files().begin()->second->bytes;
  bytes[static_cast<size_t>(kv::tier::kPage + 5 * identity_.slot_bytes() + 40)] ^= std::byte{1};
  EXPECT_EQ(Load(tokens_, 9), 5);
  ExpectHeldRight(*here_, tokens_, 5);
  EXPECT_TRUE(HasDiskMetric("baton_disk_loads_total{outcome=\"failed\"} 1"));
  // It is gone, and its neighbours are not.
  EXPECT_EQ(Load(tokens_, 9), 0);
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_TRUE(HasDiskMetric("baton_disk_failures_total{kind=\"corrupt\"} 1")) << disk_metrics_.Text();
  Restart();
  EXPECT_EQ(Load(tokens_, 9), 9) << "it was written again";
}

TEST_F(DiskTest, ADiskThatHangsEndsTheLoadAtItsDeadline) {
  Hold(*here_, tokens_, 9);
  Write();
  longest_ = absl::Milliseconds(50);
  Restart();
  absl::Notification go;
  faults_.on_read = [&] { go.WaitForNotification(); };
  EXPECT_EQ(Load(tokens_, 9), 0);
  EXPECT_TRUE(HasDiskMetric("baton_disk_loads_total{outcome=\"given_up\"} 1"));
  EXPECT_EQ(here_->pool().counts().held, 0);
  go.Notify();
  CloseTier();  // the read has left `go`
  OpenTier();
}

TEST_F(DiskTest, ALoadThatIsLetGoTouchesNothing) {
  Hold(*here_, tokens_, 9);
  Write();
  Restart();
  absl::Notification go;
  faults_.on_read = [&] { go.WaitForNotification(); };
  const auto chain = Chain(*here_, tokens_);
  loop_->Run([&] {
    prefetch_ = PrefixPrefetch::Begin(*loads_, here_->pool(), here_->RootFor(kv::TenantSalt(kSalt)),
                                      source_->Find(chain, 0), "request", tokens_, chain, 0, 1,
                                      {.prefetched = [](int64_t) { FAIL(); }, .ended = [] { FAIL(); }});
    prefetch_->Release();
    prefetch_.reset();
  });
  EXPECT_EQ(loads_->running(), 0);
  go.Notify();
  CloseTier();  // the read ends, and finds nobody
  EXPECT_EQ(here_->pool().counts().cached, 0);
  here_->pool().CheckConservation();
  OpenTier();
}

TEST_F(DiskTest, WhatIsDearerToLoadThanToComputeIsNotLoaded) {
  Hold(*here_, tokens_, 9);
  Write();
  CloseTier();
  here_ = MakeEngine(24);
  OpenTier(/*always=*/false);
  saved_ = 1e-5;
  EXPECT_EQ(Load(tokens_, 9), 0);
  saved_ = 10;
  EXPECT_EQ(Load(tokens_, 9), 9) << "the control";
}

TEST_F(DiskTest, WhatIsNotWorthItIsNotWritten) {
  CloseTier();
  // Computing a block takes less than writing one.
  OpenTier(/*always=*/false, /*compute_seconds=*/1e-6);
  Hold(*here_, tokens_, 9);
  Hold(*here_, tokens_, 9);  // used twice, but still
  Write();
  EXPECT_EQ(tier_->counts().store.blocks, 0);
  EXPECT_TRUE(HasDiskMetric("baton_disk_dropped_writes_total{reason=\"not_worth_it\"} 9"))
      << disk_metrics_.Text();
  CloseTier();
  OpenTier(/*always=*/false, /*compute_seconds=*/1);
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_EQ(tier_->counts().store.blocks, 9) << "the control";
}

TEST_F(DiskTest, AFirstUseIsWrittenWhereReuseIsLikelyEnough) {
  CloseTier();
  OpenTier(/*always=*/false, /*compute_seconds=*/1);
  const double write = tier_->WriteSeconds();
  CloseTier();
  // A use saves little more than the write costs: times its probability, it saves less.
  OpenTier(/*always=*/false, /*compute_seconds=*/1.5 * write);
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_EQ(tier_->counts().store.blocks, 0);
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_EQ(tier_->counts().store.blocks, 9) << "a second use proves it";
}

TEST_F(DiskTest, ABusyWorkerCopiesForAShareOfItsTime) {
  Hold(*here_, tokens_, 9);
  const auto written = [&](bool busy) {
    loop_->Run([&] { write_behind_->Step(busy); });
    tier_->Flush(absl::InfiniteDuration());
    return tier_->counts().store.blocks;
  };
  EXPECT_EQ(written(/*busy=*/true), 0) << "no time has passed";
  clock_.Advance(absl::Milliseconds(50));
  EXPECT_EQ(written(/*busy=*/true), 9) << "to copy takes no time by this clock";
  Hold(*here_, Tokens(5, 3), 3);
  EXPECT_EQ(written(/*busy=*/false), 12);
}

TEST_F(DiskTest, AWriteThatWaitsHoldsUpNoEviction) {
  CloseTier();
  absl::Notification go;
  faults_.on_write = [&] { go.WaitForNotification(); };
  OpenTier(/*always=*/true, /*compute_seconds=*/1, /*write_slots=*/3);
  Hold(*here_, tokens_, 9);
  loop_->Run([&] { write_behind_->Step(false); });
  Hold(*here_, Tokens(4, 20), 20);
  loop_->Run([&] { write_behind_->Step(false); });
  EXPECT_GT(disk_metrics_.Text().find("baton_disk_dropped_writes_total{reason=\"no_room\"}"), 0u);
  go.Notify();
  Write();
  here_->pool().CheckConservation();
}

// A second tier, whose folder several workers have.
class SharedTest : public DiskTest {
 protected:
  // `wrap`: what stands in front of the folder.
  void Share(const std::function<std::unique_ptr<kv::tier::Folder>(std::unique_ptr<kv::tier::Folder>)>& wrap,
             int64_t write_slots = 64) {
    auto store = kv::tier::SharedStore::Open(wrap(shared_disk_.OpenFolder()),
                                             {.bytes = 400 * identity_.slot_bytes(),
                                              .identity = identity_,
                                              .run_bytes = 5 * identity_.slot_bytes()},
                                             clock_);
    shared_ = std::make_unique<kv::tier::DiskTier>(
        *std::move(store),
        kv::tier::TierOptions{.write_bytes = write_slots * identity_.slot_bytes(),
                              .settle = absl::Milliseconds(1)},
        clock_);
    shared_client_ =
        std::make_unique<DiskClient>(DiskClient::Options{.layers = here_->store().layout().layers,
                                                         .max_chunk_bytes = 2 * identity_.block_bytes,
                                                         .ahead = 2},
                                     *loop_, *shared_);
    shared_loads_ = std::make_unique<Fetcher>(FetcherOptions{.incarnation = Incarnation(78), .always = true},
                                              *here_, receiver_, *shared_client_, clock_, shared_load_probe_);
    shared_source_ = std::make_unique<DiskSource>(*shared_, *shared_loads_, kSharedName);
    write_behind_->Add(*shared_, *shared_loads_, shared_probe_);
  }
  ~SharedTest() override { Unshare(); }
  void Unshare() {
    loop_->Run([&] { write_behind_.reset(); });
    shared_.reset();
  }
  bool AwaitShared(int64_t blocks) {
    return Await([&] { return shared_->counts().store.blocks >= blocks; }, "blocks in the shared folder") &&
           shared_->counts().store.blocks == blocks;
  }

  kv::tier::MemoryDisk shared_disk_;
  FetchProbe shared_load_probe_{disk_metrics_, FetchProbe::Tier{kSharedName}};
  DiskProbe shared_probe_{disk_metrics_, kSharedName};
  std::unique_ptr<kv::tier::DiskTier> shared_;
  std::unique_ptr<DiskClient> shared_client_;
  std::unique_ptr<Fetcher> shared_loads_;
  std::unique_ptr<DiskSource> shared_source_;
};

TEST_F(SharedTest, BlocksGoToBothAndAreFoundUnderTheirNames) {
  Share([](auto folder) { return folder; });
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_EQ(tier_->counts().store.blocks, 9);
  ASSERT_TRUE(AwaitShared(9));
  const auto chain = Chain(*here_, tokens_);
  EXPECT_EQ(shared_source_->Find(chain, 0).worker(), "shared");
  EXPECT_EQ(shared_source_->Find(chain, 2).blocks(), 9u);
  EXPECT_EQ(shared_source_->Find(Chain(*here_, tokens_, "another salt"), 0).blocks(), 0u);
  Write();  // for the metrics
  EXPECT_TRUE(HasDiskMetric("baton_shared_written_blocks_total 9")) << disk_metrics_.Text();
  EXPECT_TRUE(HasDiskMetric("baton_disk_written_blocks_total 9"));
}

TEST_F(SharedTest, AFolderThatHangsHoldsUpNeitherTheDiskNorTheEnd) {
  // A hanging write, which may end after the test.
  struct Hang {
    kv::tier::Faults faults;
    absl::Notification go;
  };
  static auto& hangs = *new std::vector<std::unique_ptr<Hang>>;
  Hang& hang = *hangs.emplace_back(std::make_unique<Hang>());
  hang.faults.on_write = [&hang] {
    hang.go.WaitForNotification();
    hang.faults.dead = true;
  };
  Share(
      [&hang](auto folder) {
        const auto faulty = std::make_shared<std::unique_ptr<kv::tier::Folder>>(
            kv::tier::MakeFaultyFolder(std::move(folder), hang.faults));
        return kv::tier::OpenPatiently(
                   [faulty] { return absl::StatusOr<std::unique_ptr<kv::tier::Folder>>(std::move(*faulty)); },
                   absl::Milliseconds(50))
            .value();
      },
      /*write_slots=*/3);
  Hold(*here_, tokens_, 9);
  Write();
  EXPECT_EQ(tier_->counts().store.blocks, 9);
  const auto failed = [&] {
    return shared_->counts().store.failures[static_cast<size_t>(kv::tier::BlockStore::Failure::kWrite)] > 0;
  };
  Await(failed, "the write that fails");
  // Nothing is read from it either, and whoever asks does not wait.
  EXPECT_EQ(shared_source_->Find(Chain(*here_, tokens_), 0).blocks(), 0u);
  Unshare();
  EXPECT_FALSE(hang.go.HasBeenNotified()) << "the end did not wait for it";
  hang.go.Notify();
}

}  // namespace
}  // namespace baton::fetch
