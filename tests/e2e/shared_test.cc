// The shared tier on real processes: what one worker has computed and published, before it was killed, a new
// worker answers with, bit for bit, for the same tenant alone; and damage costs a computation and no answer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/fetch_fixture.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;

class SharedTierTest : public FetchTest {
 protected:
  SharedTierTest() : folder_(testing::TempDir() + "/shared-tier-" + std::to_string(getpid())) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~SharedTierTest() override { fs::remove_all(folder_); }

  std::string shared() const { return folder_ + "/shared"; }
  // The shipped model computes faster than many a disk reads.
  std::vector<std::string> Sharing(std::vector<std::string> more = {}) const {
    more.insert(more.end(),
                {"--kv-shared", shared(), "--kv-shared-size", "256MiB", "--peer-fetch", "always"});
    return more;
  }
  static bool AwaitPublished(const Process& worker, double blocks) {
    return AwaitMetric(worker, {"baton_shared_blocks"}, blocks);
  }

  const std::string folder_;
};

TEST_F(SharedTierTest, ANewWorkerAnswersWithWhatAKilledOneHasPublished) {
  const auto prompt = Tokens(11, 400);
  fleet::v1::DecodeRequest request;
  {
    Fleet first({.prefill = 0, .decode = 1, .decode_flags = Sharing({"--kv-disk", folder_ + "/first"})});
    request = RequestTo(first.decode(), prompt, 20);
    const Answer answer = Run(first.decode(), request);
    ExpectAsAlone(answer, prompt, 20);
    EXPECT_EQ(answer.end().relay().fetched_tokens(), 0u);
    ASSERT_TRUE(AwaitPublished(first.decode(), 26));
    first.decode().Signal(SIGKILL);
  }
  EXPECT_EQ(fs::status(shared()).permissions(), fs::perms::owner_all);
  // Without a disk, and with one that has nothing yet.
  for (const std::vector<std::string>& own :
       {std::vector<std::string>{}, {"--kv-disk", folder_ + "/second"}}) {
    Fleet second({.prefill = 0, .decode = 1, .decode_flags = Sharing(own)});
    // The very tokens, of another tenant.
    fleet::v1::DecodeRequest strange = request;
    strange.set_salt("another tenant's salt");
    const Answer stranger = Run(second.decode(), strange);
    ExpectAsAlone(stranger, prompt, 20);
    EXPECT_EQ(stranger.end().relay().fetched_tokens(), own.empty() ? 0u : 384u);
    const double loaded = Metric(second.decode(), "baton_shared_loaded_blocks_total");
    const Answer again = Run(second.decode(), request);
    ExpectAsAlone(again, prompt, 20);
    EXPECT_EQ(again.end().relay().fetched_tokens(), 384u);
    EXPECT_EQ(again.end().relay().fetched_from(), "shared");
    EXPECT_EQ(again.end().usage().decode_cached_tokens(), 384u);
    EXPECT_EQ(Metric(second.decode(), "baton_shared_loaded_blocks_total"), loaded + 24);
    // Loaded blocks are cached: nothing is read twice.
    EXPECT_EQ(Run(second.decode(), request).end().relay().fetched_tokens(), 0u);
    // The stranger's own are published too, and found by the next worker, for that tenant.
    ASSERT_TRUE(AwaitPublished(second.decode(), 52));
    second.ExpectNothingHeld();
  }
}

TEST_F(SharedTierTest, APrefillWorkerReadsWhatADecodeWorkerPublishes) {
  Fleet fleet({.prefill = 1, .decode = 2, .prefill_flags = Sharing(), .decode_flags = Sharing()});
  const auto prompt = Tokens(12, 400);
  ExpectAsAlone(Run(fleet.decode(0), RequestTo(fleet.decode(0), prompt, 8)), prompt, 8);
  ASSERT_TRUE(AwaitPublished(fleet.decode(0), 25));
  fleet.decode(0).Signal(SIGKILL);
  // Both are processes that ran before it was published: they look now and then.
  fleet::v1::DecodeRequest request = RequestTo(fleet.decode(1), prompt, 8);
  AddTarget(request, fleet.prefill());
  const auto found = [&](const Process& worker) {
    // A request of one block makes the worker tell what it knows.
    const auto other = Tokens(13, 8);
    fleet::v1::DecodeRequest small = RequestTo(worker, other, 1);
    bool failed = false;
    const auto knows = [&] {
      failed = !Run(worker, small).status.ok();
      return failed || Metric(worker, "baton_shared_blocks") >= 25;
    };
    return Await(knows, "a worker that knows of what was published") && !failed;
  };
  ASSERT_TRUE(found(fleet.decode(1)));
  const Answer answer = Run(fleet.decode(1), request);
  ExpectAsAlone(answer, prompt, 8);
  EXPECT_EQ(answer.end().relay().fetched_from(), "shared");
  EXPECT_EQ(answer.end().relay().fetched_tokens(), 384u);
}

TEST_F(SharedTierTest, DamageAndLossCostNoAnswer) {
  const auto prompt = Tokens(14, 400);
  fleet::v1::DecodeRequest request;
  const auto answer = [&](const Process& worker) {
    const Answer answer = Run(worker, request);
    ExpectAsAlone(answer, prompt, 12);
    return answer.end().relay().fetched_tokens();
  };
  {
    Fleet first({.prefill = 0, .decode = 1, .decode_flags = Sharing()});
    request = RequestTo(first.decode(), prompt, 12);
    EXPECT_EQ(answer(first.decode()), 0u);
    ASSERT_TRUE(AwaitPublished(first.decode(), 25));
  }
  Fleet second({.prefill = 0, .decode = 1, .decode_flags = Sharing()});
  for (const auto& entry : fs::directory_iterator(shared())) {
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<int64_t>(entry.file_size()) / 2);
    file.put('\x5a');
    file.put('\xa5');
  }
  EXPECT_LT(answer(second.decode()), 384u);
  EXPECT_EQ(Metric(second.decode(), "baton_shared_failures_total{kind=\"corrupt\"}"), 1);
  second.ExpectNothingHeld();
  // All of the folder goes under the worker's feet.
  for (const auto& entry : fs::directory_iterator(shared())) fs::remove(entry.path());
  second.RestartDecode(0, SIGKILL);
  EXPECT_EQ(answer(second.decode()), 0u);
  second.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
