#include "worker/worker_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "baton/fleet/v1/decode.grpc.pb.h"
#include "baton/fleet/v1/prefill.grpc.pb.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/rpc/channel.h"
#include "tests/patience.h"
#include "worker/step_gate.h"

namespace baton::worker {
namespace {

Options SmallOptions() {
  Options options;
  options.engine.model_folder = BATON_SOURCE_DIR "/models/baton-tiny";
  options.engine.threads = 1;
  options.engine.kv_bytes = int64_t{16} << 20;
  return options;
}

// A router hears with the first snapshot how quick this worker is, before it has served anybody.
TEST(WorkerRuntimeTest, SaysWhatItsStepsTakeAndWhereItsLinkIsFast) {
  Options options = SmallOptions();
  options.link_domain = "node-a";
  const auto runtime = WorkerRuntime::Create(options, fleet::v1::ROLE_DECODE, "decode");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const fleet::v1::WorkerInfo& info = (*runtime)->hub().info();
  ASSERT_TRUE(info.has_step_cost());
  const fleet::v1::StepCost& said = info.step_cost();
  const forecast::StepCost& measured = (*runtime)->step_cost();
  EXPECT_TRUE(forecast::Plausible(measured));
  EXPECT_NE(measured, forecast::StepCost()) << "measured, not assumed";
  EXPECT_EQ(said.base_seconds(), measured.base);
  EXPECT_EQ(said.sequence_seconds(), measured.sequence);
  EXPECT_EQ(said.context_seconds(), measured.context);
  EXPECT_EQ(said.token_seconds(), measured.token);
  EXPECT_EQ(said.pair_seconds(), measured.pair);
  EXPECT_EQ(info.chunk_tokens(), options.chunk_tokens);
  EXPECT_FALSE(info.has_local_prefill_tokens()) << "nobody set a rule";
  EXPECT_EQ(info.link_domain(), "node-a");
  EXPECT_EQ((*runtime)->engine().pool().counts().held, 0);
}

// A role whose load is constant until it is told to end. Its steps may be given work to do.
template <typename Service>
class FakeRole final : public Stepper {
 public:
  FakeRole(fleet::v1::Role role, uint32_t running) : role_(role), running_(running) {}
  fleet::v1::Role role() const override { return role_; }
  grpc::Service& service() override { return service_; }
  bool Step() override {
    if (work_ == 0) return false;
    --work_;
    return true;
  }
  RoleReport Report() override {
    RoleReport report;
    report.load.set_running(aborted_.has_value() ? 0 : running_);
    report.load.set_queued_tokens(10 * running_);
    if (rate_.has_value()) report.peer_rates = {*std::exchange(rate_, std::nullopt)};
    return report;
  }
  void SetTargets(const forecast::LatencyTargets& targets) override { targets_.push_back(targets); }
  void Abort(const absl::Status& status) override { aborted_ = status; }
  // Engine thread: all that were told.
  const std::vector<forecast::LatencyTargets>& targets() const { return targets_; }
  const std::optional<absl::Status>& aborted() const { return aborted_; }
  // Engine thread: it reports this after the next step.
  void Tell(fleet::v1::PeerRate rate) { rate_ = std::move(rate); }
  // Engine thread: so many steps from now on are busy; and how many of them are left.
  void Give(int work) { work_ = work; }
  int work() const { return work_; }

 private:
  const fleet::v1::Role role_;
  const uint32_t running_;
  std::vector<forecast::LatencyTargets> targets_;
  std::optional<absl::Status> aborted_;
  std::optional<fleet::v1::PeerRate> rate_;
  int work_ = 0;
  typename Service::CallbackService service_;
};

TEST(WorkerRuntimeTest, ARouterTellsItsTargetsWhenItWatches) {
  auto runtime = WorkerRuntime::Create(SmallOptions(), fleet::v1::ROLE_DECODE, "worker");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<fleet::v1::Decode> role(fleet::v1::ROLE_DECODE, 0);
  ASSERT_TRUE((*runtime)->Serve({&role}).ok());
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
  const auto watch = [&](std::optional<forecast::LatencyTargets> targets) {
    fleet::v1::WatchRequest request;
    if (targets.has_value()) {
      request.mutable_targets()->set_ttft_seconds(targets->ttft);
      request.mutable_targets()->set_tpot_seconds(targets->tpot);
      request.mutable_targets()->set_tail_share(targets->tail_share);
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::minutes(1)));
    const auto reader = stub->Watch(&context, request);
    fleet::v1::WatchEvent event;
    EXPECT_TRUE(reader->Read(&event));
    context.TryCancel();
    reader->Finish();
  };
  const forecast::LatencyTargets first = {.ttft = 0.5, .tpot = 0.01, .tail_share = 0.25},
                                 second = {.ttft = 9};
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  watch(std::nullopt);
  watch(forecast::LatencyTargets());  // those that it has
  watch(first);
  watch(first);
  for (const forecast::LatencyTargets& unsound :
       std::vector<forecast::LatencyTargets>{{.ttft = 0},
                                             {.ttft = kNaN},
                                             {.tpot = -1},
                                             {.tpot = 1e9},
                                             {.tail_share = 2},
                                             {.tail_share = kNaN}}) {
    watch(unsound);
  }
  watch(second);
  std::vector<forecast::LatencyTargets> told;
  (*runtime)->loop().Run([&] { told = role.targets(); });
  EXPECT_THAT(told, ::testing::ElementsAre(first, second));
  (*runtime)->Stop(absl::UnavailableError("the test is over"));
}

TEST(WorkerRuntimeTest, RunsSeveralRolesOnOneEngineAndTellsThem) {
  auto runtime = WorkerRuntime::Create(SmallOptions(), fleet::v1::ROLE_DECODE, "worker");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<fleet::v1::Prefill> prefill(fleet::v1::ROLE_PREFILL, 1);
  FakeRole<fleet::v1::Decode> decode(fleet::v1::ROLE_DECODE, 2);
  ASSERT_TRUE((*runtime)->Serve({&prefill, &decode}).ok());
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
  {
    // An event that does not come fails the test.
    const auto patience = std::chrono::system_clock::now() + Scaled(std::chrono::minutes(1));
    grpc::ClientContext context;
    context.set_deadline(patience);
    const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
    fleet::v1::WatchEvent event;
    ASSERT_TRUE(reader->Read(&event));
    const fleet::v1::Snapshot& snapshot = event.snapshot();
    EXPECT_EQ(snapshot.info().role(), fleet::v1::ROLE_DECODE);
    EXPECT_THAT(snapshot.active_roles(),
                ::testing::ElementsAre(fleet::v1::ROLE_PREFILL, fleet::v1::ROLE_DECODE));
    EXPECT_EQ(snapshot.load().running(), 3u);
    EXPECT_EQ(snapshot.load().queued_tokens(), 30u);
    EXPECT_GT(snapshot.load().total_blocks(), 0u);
    EXPECT_EQ(snapshot.peer_rates_size(), 0);
    // A rate is told once, and to whoever comes later with the snapshot.
    fleet::v1::PeerRate rate;
    rate.set_worker("p");
    rate.set_bytes_per_second(5e9);
    (*runtime)->loop().Run([&] { decode.Tell(rate); });
    do {
      ASSERT_TRUE(reader->Read(&event));
    } while (event.delta().peer_rates().empty());
    ASSERT_EQ(event.delta().peer_rates_size(), 1);
    EXPECT_EQ(event.delta().peer_rates(0).worker(), "p");
    (*runtime)->hub().SetDraining(true);
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_TRUE(event.delta().draining());
    EXPECT_EQ(event.delta().peer_rates_size(), 0);
    grpc::ClientContext later;
    later.set_deadline(patience);
    const auto second = stub->Watch(&later, fleet::v1::WatchRequest());
    ASSERT_TRUE(second->Read(&event));
    EXPECT_EQ(event.snapshot().peer_rates_size(), 1);
    later.TryCancel();
    second->Finish();
    context.TryCancel();
    reader->Finish();
  }
  (*runtime)->Stop(absl::UnavailableError("leaving"));
  EXPECT_EQ(prefill.aborted(), absl::UnavailableError("leaving"));
  EXPECT_EQ(decode.aborted(), absl::UnavailableError("leaving"));
}

// Lets a worker take so many busy steps. Closed at first.
class CountingGate final : public StepGate {
 public:
  bool MayStep() override { return left_ > 0; }
  void Stepped(bool busy) override {
    if (busy) --left_;
  }
  void Allow(int steps) { left_ = steps; }
  int left() const { return left_; }

 private:
  std::atomic<int> left_ = 0;
};

TEST(WorkerRuntimeTest, AWorkerThatIsHeldDoesEverythingButStep) {
  CountingGate gate;
  Options options = SmallOptions();
  options.step_gate = &gate;
  const auto runtime = WorkerRuntime::Create(options, fleet::v1::ROLE_DECODE, "worker");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<fleet::v1::Decode> decode(fleet::v1::ROLE_DECODE, 2);
  ASSERT_TRUE((*runtime)->Serve({&decode}).ok());
  engine::Loop& loop = (*runtime)->loop();
  const auto work = [&] {
    int left = 0;
    loop.Run([&] { left = decode.work(); });
    return left;
  };
  {
    const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::minutes(1)));
    const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
    fleet::v1::WatchEvent event;
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(event.snapshot().load().running(), 2u);
    // It takes mail, and tells news. Each task is followed by a step, if there may be one.
    loop.Run([&] {
      decode.Give(5);
      fleet::v1::PeerRate rate;
      rate.set_worker("p");
      rate.set_bytes_per_second(5e9);
      decode.Tell(rate);
    });
    do {
      ASSERT_TRUE(reader->Read(&event));
    } while (event.delta().peer_rates().empty());
    EXPECT_EQ(work(), 5);
    context.TryCancel();
    reader->Finish();
  }
  // Nobody wakes it when it may go on.
  gate.Allow(2);
  EXPECT_TRUE(Await([&] { return gate.left() == 0; }, "two steps"));
  EXPECT_EQ(work(), 3);
  gate.Allow(100);
  EXPECT_TRUE(Await([&] { return work() == 0; }, "the last steps"));
  EXPECT_EQ(gate.left(), 97) << "only busy steps count";
  gate.Allow(0);
  loop.Run([&] { decode.Give(1); });
  (*runtime)->Stop(absl::UnavailableError("leaving"));
  EXPECT_EQ(decode.aborted(), absl::UnavailableError("leaving"));
  EXPECT_EQ(decode.work(), 1);
}

// A worker without work has no next step by which its watchers would hear what could not be told at once.
TEST(WorkerRuntimeTest, TellsWithoutWorkWhatHadToWait) {
  const auto runtime = WorkerRuntime::Create(SmallOptions(), fleet::v1::ROLE_DECODE, "decode");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<fleet::v1::Decode> decode(fleet::v1::ROLE_DECODE, 0);
  ASSERT_TRUE((*runtime)->Serve({&decode}).ok());
  const absl::Cleanup stop = [&] { (*runtime)->Stop(absl::UnavailableError("leaving")); };
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
  fleet::v1::WatchRequest request;
  request.set_blocks(true);
  const auto reader = stub->Watch(&context, request);
  fleet::v1::WatchEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const kv::BlockHash hash = kv::BlockHash::FromBytes(std::string(kv::BlockHash::kBytes, 'h'));
  // An event that is told at once, and another while the first is on its way.
  const auto publish = [&](uint32_t running, kv::BlockPool::Changes changes) {
    (*runtime)->loop().Run([&] {
      fleet::v1::Load load;
      load.set_running(running);
      const auto published = [&] { return std::vector<kv::BlockHash>{hash}; };
      (*runtime)->hub().Publish(std::move(load), 0, {}, published, absl::Now());
      (*runtime)->hub().Publish({}, 0, std::move(changes), published, absl::Now());
    });
  };
  for (uint32_t round = 1; round <= 20; ++round) {
    SCOPED_TRACE(round);
    publish(round, {.reset = false, .stored = {}, .evicted = {hash}});
    do {
      ASSERT_TRUE(reader->Read(&event)) << "the eviction was not told";
    } while (event.delta().evicted() != hash.bytes());
    publish(round, {.reset = true, .stored = {}, .evicted = {}});
    do {
      ASSERT_TRUE(reader->Read(&event)) << "the snapshot was not told";
    } while (!event.has_snapshot());
  }
  context.TryCancel();
  reader->Finish();
}

// An event does not tell whether a block came first or went first.
TEST(WorkerRuntimeTest, TellsOfABlockThatComesAndGoesWhatItDidLast) {
  const auto runtime = WorkerRuntime::Create(SmallOptions(), fleet::v1::ROLE_DECODE, "decode");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<fleet::v1::Decode> decode(fleet::v1::ROLE_DECODE, 0);
  ASSERT_TRUE((*runtime)->Serve({&decode}).ok());
  const absl::Cleanup stop = [&] { (*runtime)->Stop(absl::UnavailableError("leaving")); };
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
  fleet::v1::WatchRequest request;
  request.set_blocks(true);
  const auto reader = stub->Watch(&context, request);
  fleet::v1::WatchEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const auto hash_of = [](uint32_t name) {
    return kv::BlockHash::FromBytes(std::string(kv::BlockHash::kBytes, static_cast<char>(name)));
  };
  const kv::BlockHash hash = hash_of('h');
  const auto none = [] { return std::vector<kv::BlockHash>(); };
  // As a router takes it: what has gone first.
  std::set<std::string> in_memory, on_disk;
  const auto take = [](const std::string& gone, const std::string& come, std::set<std::string>& held) {
    constexpr size_t kBytes = kv::BlockHash::kBytes;
    for (size_t at = 0; at < gone.size(); at += kBytes) held.erase(gone.substr(at, kBytes));
    for (size_t at = 0; at < come.size(); at += kBytes) held.insert(come.substr(at, kBytes));
  };
  for (uint32_t round = 1; round <= 20; ++round) {
    SCOPED_TRACE(round);
    const bool stays = round % 2 == 0;
    // One step after the other, before kPace is over: what the second and the third tell is merged, and the
    // last one, which is urgent, ends it.
    const auto publish = [&](uint32_t queued, std::vector<kv::BlockHash> come,
                             std::vector<kv::BlockHash> gone) {
      fleet::v1::Load load;
      load.set_running(round);
      load.set_queued(queued);
      const kv::BlockPool::Changes changes{
          .reset = false, .stored = std::move(come), .evicted = std::move(gone)};
      const WatchHub::DiskNews news{.changes = changes, .stored = none, .rate = std::nullopt};
      (*runtime)->hub().Publish(std::move(load), 0, changes, none, absl::UnixEpoch(), &news);
    };
    (*runtime)->loop().Run([&] {
      publish(0, {}, {});
      stays ? publish(0, {}, {hash}) : publish(0, {hash}, {});
      stays ? publish(0, {hash}, {}) : publish(0, {}, {hash});
      publish(round, {hash_of(round)}, {});
    });
    while (!on_disk.contains(std::string(hash_of(round).bytes()))) {
      ASSERT_TRUE(reader->Read(&event));
      take(event.delta().evicted(), event.delta().stored(), in_memory);
      take(event.delta().disk_evicted(), event.delta().disk_stored(), on_disk);
    }
    EXPECT_EQ(in_memory.contains(std::string(hash.bytes())), stays);
    EXPECT_EQ(on_disk.contains(std::string(hash.bytes())), stays);
  }
  context.TryCancel();
  reader->Finish();
}

// Blocks on a large disk come in several events, and those that have gone meanwhile do not.
TEST(WorkerRuntimeTest, TellsOfMoreBlocksOnDiskThanAnEventHolds) {
  const auto runtime = WorkerRuntime::Create(SmallOptions(), fleet::v1::ROLE_DECODE, "decode");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<fleet::v1::Decode> decode(fleet::v1::ROLE_DECODE, 0);
  ASSERT_TRUE((*runtime)->Serve({&decode}).ok());
  const absl::Cleanup stop = [&] { (*runtime)->Stop(absl::UnavailableError("leaving")); };
  constexpr uint32_t kBlocks = 70'000;
  const auto hash_of = [](uint32_t name) {
    std::string bytes(kv::BlockHash::kBytes, 'h');
    std::memcpy(bytes.data(), &name, sizeof(name));
    return kv::BlockHash::FromBytes(bytes);
  };
  std::vector<kv::BlockHash> hashes;
  for (uint32_t i = 0; i < kBlocks; ++i) hashes.push_back(hash_of(i));
  const auto all = [&] { return hashes; };
  // Blocks of odd names have gone when their turn comes.
  (*runtime)->hub().SetOnDisk([](const kv::BlockHash& hash) { return hash.bytes()[0] % 2 == 0; });
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::minutes(5)));
  fleet::v1::WatchRequest request;
  request.set_blocks(true);
  const auto reader = stub->Watch(&context, request);
  fleet::v1::WatchEvent event;
  ASSERT_TRUE(reader->Read(&event));
  // True if the last snapshot told of the disk: the runtime, which has none, publishes too.
  std::atomic<bool> seen = false;
  const auto publish = [&] {
    (*runtime)->loop().Run([&] {
      const WatchHub::DiskNews news{.changes = {.reset = !seen, .stored = {}, .evicted = {}},
                                    .stored = all,
                                    .rate = fleet::v1::DiskRate()};
      (*runtime)->hub().Publish(
          {}, 0, {}, [] { return std::vector<kv::BlockHash>(); }, absl::UnixEpoch(), &news);
    });
  };
  std::jthread steps([&](const std::stop_token& end) {
    while (!end.stop_requested()) publish();
  });
  std::set<std::string> even, odd;
  while (even.size() < kBlocks / 2) {
    ASSERT_TRUE(reader->Read(&event));
    const std::string& bytes =
        event.has_snapshot() ? event.snapshot().disk_stored() : event.delta().disk_stored();
    EXPECT_LT(bytes.size(), size_t{1} << 20);
    if (event.has_snapshot()) {
      even.clear();
      odd.clear();
      seen = !bytes.empty();
    }
    for (size_t at = 0; at < bytes.size(); at += kv::BlockHash::kBytes) {
      (bytes[at] % 2 == 0 ? even : odd).insert(bytes.substr(at, kv::BlockHash::kBytes));
    }
  }
  // Odd names come in the snapshot alone.
  EXPECT_GT(odd.size(), 0u);
  EXPECT_LT(odd.size(), kBlocks / 4);
  context.TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace baton::worker
