#include "common/worker/worker_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>

#include "baton/v1/decode.grpc.pb.h"
#include "baton/v1/prefill.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/rpc/channel.h"

namespace baton::worker {
namespace {

Options SmallOptions() {
  Options options;
  options.engine.model_folder = BATON_SOURCE_DIR "/models/baton-tiny";
  options.engine.threads = 1;
  options.engine.kv_bytes = int64_t{16} << 20;
  return options;
}

// What a router hears with the first snapshot: how quick this worker is, before it has served anybody.
TEST(WorkerRuntimeTest, SaysWhatItsStepsTakeAndWhereItsLinkIsFast) {
  Options options = SmallOptions();
  options.link_domain = "node-a";
  const auto runtime = WorkerRuntime::Create(options, v1::ROLE_DECODE, "decode");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const v1::WorkerInfo& info = (*runtime)->hub().info();
  ASSERT_TRUE(info.has_step_cost());
  const v1::StepCost& said = info.step_cost();
  const forecast::StepCost& measured = (*runtime)->step_cost();
  EXPECT_TRUE(forecast::Plausible(measured));
  EXPECT_NE(measured, forecast::StepCost()) << "measured, not assumed";
  EXPECT_EQ(said.base(), measured.base);
  EXPECT_EQ(said.sequence(), measured.sequence);
  EXPECT_EQ(said.context(), measured.context);
  EXPECT_EQ(said.token(), measured.token);
  EXPECT_EQ(said.pair(), measured.pair);
  EXPECT_EQ(info.chunk_tokens(), options.chunk_tokens);
  EXPECT_EQ(info.link_domain(), "node-a");
  EXPECT_EQ((*runtime)->engine().pool().counts().held, 0);
}

// A role whose load is constant until it is told to end.
template <typename Service>
class FakeRole final : public Stepper {
 public:
  FakeRole(v1::Role role, uint32_t running) : role_(role), running_(running) {}
  v1::Role role() const override { return role_; }
  grpc::Service& service() override { return service_; }
  StepReport Step() override {
    StepReport report;
    report.load.set_running(aborted_.has_value() ? 0 : running_);
    report.load.set_queued_tokens(10 * running_);
    if (rate_.has_value()) report.peer_rates = {*std::exchange(rate_, std::nullopt)};
    return report;
  }
  void Abort(const absl::Status& status) override { aborted_ = status; }
  const std::optional<absl::Status>& aborted() const { return aborted_; }
  // Engine thread: it reports this with its next step.
  void Tell(v1::PeerRate rate) { rate_ = std::move(rate); }

 private:
  const v1::Role role_;
  const uint32_t running_;
  std::optional<absl::Status> aborted_;
  std::optional<v1::PeerRate> rate_;
  typename Service::CallbackService service_;
};

TEST(WorkerRuntimeTest, RunsSeveralRolesOnOneEngineAndTellsThem) {
  auto runtime = WorkerRuntime::Create(SmallOptions(), v1::ROLE_DECODE, "worker");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  FakeRole<v1::Prefill> prefill(v1::ROLE_PREFILL, 1);
  FakeRole<v1::Decode> decode(v1::ROLE_DECODE, 2);
  ASSERT_TRUE((*runtime)->Serve({&prefill, &decode}).ok());
  const auto stub = v1::Worker::NewStub(rpc::MakeChannel((*runtime)->address()));
  {
    // What does not come fails the test.
    const auto patience = std::chrono::system_clock::now() + std::chrono::minutes(1);
    grpc::ClientContext context;
    context.set_deadline(patience);
    const auto reader = stub->Watch(&context, v1::WatchRequest());
    v1::WatchEvent event;
    ASSERT_TRUE(reader->Read(&event));
    const v1::Snapshot& snapshot = event.snapshot();
    EXPECT_EQ(snapshot.info().role(), v1::ROLE_DECODE);
    EXPECT_THAT(snapshot.active_roles(), ::testing::ElementsAre(v1::ROLE_PREFILL, v1::ROLE_DECODE));
    EXPECT_EQ(snapshot.load().running(), 3u);
    EXPECT_EQ(snapshot.load().queued_tokens(), 30u);
    EXPECT_GT(snapshot.load().total_blocks(), 0u);
    EXPECT_EQ(snapshot.peer_rates_size(), 0);
    // A rate is told once, and to whoever comes later with the snapshot.
    v1::PeerRate rate;
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
    const auto second = stub->Watch(&later, v1::WatchRequest());
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

}  // namespace
}  // namespace baton::worker
