// The disk tier on real processes: what was warm is warm after a kill and a new process on the same folder,
// bit for bit, for its own tenant alone; and damage on the disk costs a computation and no answer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/fetch_fixture.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;

class DiskTierTest : public FetchTest {
 protected:
  DiskTierTest() : folder_(testing::TempDir() + "/disk-tier-" + std::to_string(getpid())) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~DiskTierTest() override { fs::remove_all(folder_); }

  // The shipped model computes faster than many a disk reads.
  std::vector<std::string> On(const std::string& name) const {
    return {"--kv-disk", folder_ + "/" + name, "--kv-disk-size", "256MiB", "--peer-fetch", "always"};
  }
  // The snapshot that routers get.
  static fleet::v1::Snapshot SnapshotOf(const Process& worker) {
    const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(worker.grpc()));
    grpc::ClientContext context;
    fleet::v1::WatchRequest request;
    request.set_blocks(true);
    const auto reader = stub->Watch(&context, request);
    fleet::v1::WatchEvent event;
    EXPECT_TRUE(reader->Read(&event));
    context.TryCancel();
    return event.snapshot();
  }
  static bool AwaitWritten(const Process& worker, double blocks) {
    return AwaitMetric(worker, {"baton_disk_blocks"}, blocks);
  }

  const std::string folder_;
};

TEST_F(DiskTierTest, ADecodeWorkerThatWasKilledFindsItsBlocks) {
  Fleet fleet({.prefill = 0, .decode = 1, .decode_flags = On("decode")});
  const auto prompt = Tokens(1, 400);
  fleet::v1::DecodeRequest request = RequestTo(fleet.decode(), prompt, 20);
  ExpectAsAlone(Run(fleet.decode(), request), prompt, 20);
  // The 419 computed tokens fill 26 blocks.
  ASSERT_TRUE(AwaitWritten(fleet.decode(), 26));
  fleet.RestartDecode(0, SIGKILL);
  const fleet::v1::Snapshot told = SnapshotOf(fleet.decode());
  EXPECT_EQ(told.load().disk_blocks(), 26u);
  EXPECT_EQ(told.disk_stored().size(), 26u * kv::BlockHash::kBytes);
  EXPECT_EQ(told.stored().size(), 0u);
  EXPECT_GT(told.disk_rate().bytes_per_second(), 0);
  const Answer again = Run(fleet.decode(), request);
  ExpectAsAlone(again, prompt, 20);
  EXPECT_EQ(again.end().relay().fetched_tokens(), 384u);
  EXPECT_EQ(again.end().relay().fetched_from(), "disk");
  EXPECT_EQ(again.end().usage().decode_cached_tokens(), 384u);
  const v1::Timing& timing = again.end().timing();
  EXPECT_NEAR(timing.decode_queue_seconds() + timing.prefill_queue_seconds() + timing.prefill_seconds() +
                  timing.transfer_seconds() + timing.first_token_seconds(),
              timing.ttft_seconds(), 1e-6)
      << "the phases add up";
  EXPECT_GE(timing.prefill_queue_seconds(), again.end().relay().fetch_seconds() - 1e-6)
      << "loading is waiting";
  EXPECT_EQ(Metric(fleet.decode(), "baton_disk_loaded_blocks_total"), 24);
  // Loaded blocks are cached: nothing is read twice.
  EXPECT_EQ(Run(fleet.decode(), request).end().relay().fetched_tokens(), 0u);
  // The very tokens, of another tenant.
  fleet.RestartDecode(0, SIGKILL);
  request.set_salt("another tenant's salt");
  const Answer stranger = Run(fleet.decode(), request);
  ExpectAsAlone(stranger, prompt, 20);
  EXPECT_EQ(stranger.end().relay().fetched_tokens(), 0u);
  EXPECT_EQ(stranger.end().usage().decode_cached_tokens(), 0u);
  EXPECT_EQ(Metric(fleet.decode(), "baton_disk_loads_total"), 0);
  fleet.ExpectNothingHeld();
}

TEST_F(DiskTierTest, APrefillWorkerThatWasKilledFindsItsBlocks) {
  Fleet fleet({.prefill = 1, .decode = 2, .prefill_flags = On("prefill")});
  const auto prompt = Tokens(2, 400);
  fleet::v1::DecodeRequest first = RequestTo(fleet.decode(0), prompt, 8);
  AddTarget(first, fleet.prefill());
  ExpectAsAlone(Run(fleet.decode(0), first), prompt, 8);
  ASSERT_TRUE(AwaitWritten(fleet.prefill(), 25));
  fleet.RestartPrefill(0, SIGKILL);
  fleet::v1::DecodeRequest second = RequestTo(fleet.decode(1), prompt, 8);
  AddTarget(second, fleet.prefill());
  const Answer again = Run(fleet.decode(1), second);
  ExpectAsAlone(again, prompt, 8);
  EXPECT_EQ(again.end().relay().fetched_tokens(), 384u);
  EXPECT_EQ(again.end().relay().fetched_from(), "disk");
  EXPECT_GT(again.end().relay().fetch_seconds(), 0);
  EXPECT_EQ(again.end().usage().prefill_cached_tokens(), 384u);
  fleet.ExpectNothingHeld();
}

// Blocks evicted from a small pool come back from the disk, in the same process and after it has left.
TEST_F(DiskTierTest, AWorkingSetBeyondTheMemoryIsKept) {
  Fleet fleet({.prefill = 0, .decode = 1, .decode_flags = On("decode"), .kv_memory = "3MiB"});
  const auto ask = [&](uint32_t seed) {
    const auto prompt = Tokens(seed, 300);
    const Answer answer = Run(fleet.decode(), RequestTo(fleet.decode(), prompt, 4));
    ExpectAsAlone(answer, prompt, 4);
    return answer.end().usage().decode_cached_tokens();
  };
  for (uint32_t seed = 0; seed < 12; ++seed) EXPECT_EQ(ask(seed), 0u);
  // 12 prompts of 18 whole blocks.
  ASSERT_TRUE(AwaitWritten(fleet.decode(), 12 * 18));
  for (uint32_t seed = 0; seed < 12; ++seed) EXPECT_EQ(ask(seed), 288u) << seed;
  EXPECT_GT(Metric(fleet.decode(), "baton_disk_loaded_blocks_total"), 0);
  EXPECT_EQ(fleet.RestartDecode(0).Describe(), "exit code 0");
  for (uint32_t seed = 0; seed < 12; ++seed) EXPECT_EQ(ask(seed), 288u) << seed;
  EXPECT_EQ(Metric(fleet.decode(), "baton_disk_loads_total{outcome=\"complete\"}"), 12);
  fleet.ExpectNothingHeld();
}

// Encrypted blocks are found by who has the key, and dropped by who has another.
TEST_F(DiskTierTest, BlocksAreReadUnderTheirKeyAlone) {
  const auto write_key = [&](char digit) {
    std::ofstream(folder_ + "/key") << std::string(64, digit) << "\n";
  };
  write_key('a');
  std::vector<std::string> flags = On("decode");
  flags.insert(flags.end(), {"--kv-disk-key", folder_ + "/key"});
  Fleet fleet({.prefill = 0, .decode = 1, .decode_flags = flags});
  const auto prompt = Tokens(6, 400);
  const fleet::v1::DecodeRequest request = RequestTo(fleet.decode(), prompt, 12);
  ExpectAsAlone(Run(fleet.decode(), request), prompt, 12);
  ASSERT_TRUE(AwaitWritten(fleet.decode(), 25));
  fleet.RestartDecode(0, SIGKILL);
  Answer again = Run(fleet.decode(), request);
  ExpectAsAlone(again, prompt, 12);
  EXPECT_EQ(again.end().relay().fetched_tokens(), 384u);
  EXPECT_EQ(again.end().relay().fetched_from(), "disk");
  write_key('b');
  fleet.RestartDecode(0, SIGKILL);
  EXPECT_NE(fleet.decode().TakeErrors().find("files dropped, as they are in the clear, or of a key that"),
            std::string::npos);
  EXPECT_EQ(SnapshotOf(fleet.decode()).load().disk_blocks(), 0u);
  again = Run(fleet.decode(), request);
  ExpectAsAlone(again, prompt, 12);
  EXPECT_EQ(again.end().relay().fetched_tokens(), 0u);
  // Damage under the right key is a miss too.
  ASSERT_TRUE(AwaitWritten(fleet.decode(), 25));
  fleet.decode().Signal(SIGSTOP);
  fleet.decode().AwaitStopped();
  for (const auto& entry : fs::directory_iterator(folder_ + "/decode")) {
    if (entry.path().filename() == "lock") continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(1'000'000);
    file.put('\x5a');
  }
  fleet.RestartDecode(0, SIGKILL);
  again = Run(fleet.decode(), request);
  ExpectAsAlone(again, prompt, 12);
  EXPECT_LT(again.end().relay().fetched_tokens(), 384u);
  EXPECT_GT(again.end().relay().fetched_tokens(), 0u);
  EXPECT_EQ(Metric(fleet.decode(), "baton_disk_failures_total{kind=\"corrupt\"}"), 1);
  EXPECT_NE(fleet.decode().TakeErrors().find("its tag is wrong under the key"), std::string::npos);
  fleet.ExpectNothingHeld();
}

// Through the router, which learns again what is on disk, and of both roles at once.
TEST_F(DiskTierTest, AFleetThatWasKilledAnswersFromItsDisks) {
  Fleet fleet({.prefill = 1, .decode = 1, .prefill_flags = On("prefill"), .decode_flags = On("decode")});
  const auto prompt = Tokens(7, 400);
  const v1::GenerateRequest request = TokenRequest(prompt, 12);
  const Answer first = fleet.Generate(request);
  ExpectAsAlone(first, prompt, 12);
  EXPECT_EQ(first.end().usage().cached_tokens(), 0u);
  ASSERT_TRUE(AwaitWritten(fleet.decode(), 25));
  fleet.decode().Signal(SIGKILL);
  fleet.prefill().Signal(SIGKILL);
  fleet.AwaitWorkers(0, 0);
  fleet.RestartDecode(0, SIGKILL);
  fleet.RestartPrefill(0, SIGKILL);
  fleet.AwaitWorkers(1, 1);
  const Answer again = fleet.Generate(request);
  ExpectAsAlone(again, prompt, 12);
  EXPECT_EQ(again.end().usage().cached_tokens(), 384u);
  EXPECT_EQ(again.end().relay().fetched_from(), "disk");
  EXPECT_EQ(again.end().relay().fetched_tokens(), 384u);
  EXPECT_EQ(Metric(fleet.decode(), "baton_disk_loaded_blocks_total") +
                Metric(fleet.prefill(), "baton_disk_loaded_blocks_total"),
            24);
  fleet.ExpectNothingHeld();
}

TEST_F(DiskTierTest, DamageCostsNoAnswer) {
  Fleet fleet({.prefill = 0, .decode = 1, .decode_flags = On("decode")});
  const auto prompt = Tokens(5, 400);
  const fleet::v1::DecodeRequest request = RequestTo(fleet.decode(), prompt, 12);
  ExpectAsAlone(Run(fleet.decode(), request), prompt, 12);
  ASSERT_TRUE(AwaitWritten(fleet.decode(), 25));
  fleet.decode().Signal(SIGSTOP);
  fleet.decode().AwaitStopped();
  // A byte in every 300,000, blocks and seals alike.
  for (const auto& entry : fs::directory_iterator(folder_ + "/decode")) {
    if (entry.path().filename() == "lock") continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    for (int64_t at = 200'000; at < static_cast<int64_t>(entry.file_size()); at += 300'000) {
      file.seekp(at);
      file.put('\x5a');
    }
  }
  fleet.RestartDecode(0, SIGKILL);
  const Answer again = Run(fleet.decode(), request);
  ExpectAsAlone(again, prompt, 12);
  EXPECT_LT(again.end().relay().fetched_tokens(), 384u);
  EXPECT_GT(again.end().relay().fetched_tokens(), 0u);
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
