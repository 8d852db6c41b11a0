// What every link promises, run against each implementation: a new link adds a row to the instantiation
// below.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

#include "absl/synchronization/notification.h"
#include "common/base/mailbox.h"
#include "common/transfer/host_link.h"
#include "common/transfer/link.h"
#include "common/transfer/nccl/nccl_link.h"
#include "common/transfer/staged_host_link.h"
#include "common/transfer/ucx/open_ucx.h"
#include "common/transfer/ucx/ucx_link.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/fakes/far_memory.h"

namespace baton::transfer {
namespace {

struct LinkPair {
  std::shared_ptr<LinkSender> sender;
  std::shared_ptr<LinkReceiver> receiver;
  // Runs what the receiver has posted to the engine thread, waiting for something if there is nothing.
  std::function<void()> run_engine = [] {};
  // The address of the sender's streams.
  std::string from = "sender:1";
};

// The nccl link over a NCCL of one process, in host memory: all but NCCL itself and the kernels is the real
// one.
LinkPair MakeNcclPair() {
  struct Setup {
    FakeNccl nccl;
    MonotonicClock clock;
    std::unique_ptr<Payload> payload = MakeHostPayload();
    Mailbox<absl::AnyInvocable<void()>> engine{1000};
    NcclLink::Post post = [this](absl::AnyInvocable<void()> task) {
      return engine.PostAlways(std::move(task));
    };
    NcclLink::Ask ask = [this](const std::string& address, const Meeting& meeting,
                               LinkSender::Answer answer) {
      EXPECT_EQ(address, "sender:1");
      sender->Meet(meeting, std::move(answer));
    };
    std::unique_ptr<NcclLink> sender =
        *NcclLink::Create(nccl.Api(), *payload, clock, Incarnation(1), post, ask, {});
    std::unique_ptr<NcclLink> receiver =
        *NcclLink::Create(nccl.Api(), *payload, clock, Incarnation(2), post, ask, {});
  };
  const auto setup = std::make_shared<Setup>();
  return {std::shared_ptr<LinkSender>(setup, setup->sender.get()),
          std::shared_ptr<LinkReceiver>(setup, setup->receiver.get()), [setup = setup.get()] {
            for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
          }};
}

// The ucx link over the real UCX, as this machine has it. Nothing in a build without.
LinkPair MakeUcxPair() {
  struct Setup {
    MonotonicClock clock;
    Ucx sending, receiving;
    Mailbox<absl::AnyInvocable<void()>> engine{1000};
    std::unique_ptr<UcxLink> sender, receiver;
  };
  const auto setup = std::make_shared<Setup>();
  device::Memory* const host = &device::HostMemory();
  for (Ucx* ucx : {&setup->sending, &setup->receiving}) {
    absl::StatusOr<Ucx> opened = OpenUcx({&host, 1});
    if (!opened.ok()) return {};
    *ucx = *std::move(opened);
  }
  const UcxLink::Post post = [setup = setup.get()](absl::AnyInvocable<void()> task) {
    return setup->engine.PostAlways(std::move(task));
  };
  setup->sender = *UcxLink::Create(std::move(setup->sending.fabric), *setup->sending.payload, setup->clock,
                                   Incarnation(1), post, {});
  setup->receiver = *UcxLink::Create(std::move(setup->receiving.fabric), *setup->receiving.payload,
                                     setup->clock, Incarnation(2), post, {});
  return {std::shared_ptr<LinkSender>(setup, setup->sender.get()),
          std::shared_ptr<LinkReceiver>(setup, setup->receiver.get()),
          [setup = setup.get()] {
            for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
          },
          "127.0.0.1:1"};
}

// The host link of a worker whose KV lies on a device.
LinkPair MakeStagedHostPair() {
  struct Setup {
    device::FarMemory memory;
    Mailbox<absl::AnyInvocable<void()>> engine{1000};
    std::unique_ptr<StagedHostLinkSender> sender =
        *StagedHostLinkSender::Create(memory, int64_t{1} << 20, [] {});
    StagedHostLinkReceiver receiver{
        memory, [this](absl::AnyInvocable<void()> task) { return engine.PostAlways(std::move(task)); }};
  };
  const auto setup = std::make_shared<Setup>();
  return {std::shared_ptr<LinkSender>(setup, setup->sender.get()),
          std::shared_ptr<LinkReceiver>(setup, &setup->receiver), [setup = setup.get()] {
            for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
          }};
}

struct LinkCase {
  const char* name;
  std::function<LinkPair()> make;
};

class LinkContractTest : public testing::TestWithParam<LinkCase> {
 protected:
  void SetUp() override {
    if (link_.sender == nullptr) GTEST_SKIP() << "this build has no " << GetParam().name;
  }

  LinkPair link_ = GetParam().make();

  // Ships `source` in pieces of `sizes` and receives it into pieces of the same sizes.
  absl::Status Transfer(const std::vector<std::byte>& source, const std::vector<size_t>& sizes,
                        std::vector<std::byte>& target, const std::function<void(v1::KvChunk&)>& on_the_way) {
    std::vector<std::span<const std::byte>> from;
    std::vector<std::span<std::byte>> to;
    size_t offset = 0;
    for (size_t size : sizes) {
      from.push_back(std::span(source).subspan(offset, size));
      to.push_back(std::span(target).subspan(offset, size));
      offset += size;
    }
    v1::KvChunk chunk;
    chunk.set_incarnation(2);  // the receiver's
    if (absl::Status shipped = link_.sender->Ship(from, chunk); !shipped.ok()) return shipped;
    absl::Notification ready;
    link_.sender->WhenReady([&] { ready.Notify(); });
    ready.WaitForNotification();
    on_the_way(chunk);
    absl::Status received = absl::UnknownError("done was not called");
    int calls = 0;
    link_.receiver->Receive(chunk, link_.from, to, [&](absl::Status status) {
      ++calls;
      received = std::move(status);
    });
    while (calls == 0) link_.run_engine();
    EXPECT_EQ(calls, 1);
    return received;
  }
};

TEST_P(LinkContractTest, BothEndsNameTheSamePath) {
  EXPECT_EQ(link_.sender->name(), link_.receiver->name());
  EXPECT_EQ(link_.sender->pairing(), link_.receiver->pairing());
  EXPECT_FALSE(link_.sender->name().empty());
}

TEST_P(LinkContractTest, CarriesEveryByteOfRandomPieces) {
  const uint32_t seed = 20;
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> sizes(1 + random() % 8);
    size_t total = 0;
    for (size_t& size : sizes) total += size = 1 + random() % 5000;
    std::vector<std::byte> source(total), target(total);
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    ASSERT_TRUE(Transfer(source, sizes, target, [](v1::KvChunk&) {}).ok()) << "seed " << seed;
    ASSERT_EQ(source, target) << "seed " << seed << " round " << round;
  }
}

TEST_P(LinkContractTest, TakesItsCopyBeforeShipReturns) {
  std::vector<std::byte> source(64, std::byte{1}), target(64);
  std::vector<std::byte> original = source;
  ASSERT_TRUE(Transfer(source, {64}, target, [&](v1::KvChunk&) {
                for (std::byte& byte : source) byte = std::byte{9};
              }).ok());
  EXPECT_EQ(target, original);
}

TEST_P(LinkContractTest, AFlippedBitIsDataLossAndNothingIsWritten) {
  std::vector<std::byte> source(256, std::byte{3}), target(256, std::byte{7});
  const absl::Status status = Transfer(source, {100, 156}, target, [](v1::KvChunk& chunk) {
    if (!chunk.data().empty()) {
      (*chunk.mutable_data())[200] ^= 4;
    } else {
      chunk.set_crc32c(chunk.crc32c() ^ 4);
    }
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(target, std::vector<std::byte>(256, std::byte{7}));
}

INSTANTIATE_TEST_SUITE_P(
    Links, LinkContractTest,
    testing::Values(
        LinkCase{"host",
                 [] {
                   return LinkPair{std::make_shared<HostLinkSender>(), std::make_shared<HostLinkReceiver>()};
                 }},
        LinkCase{"staged_host", MakeStagedHostPair}, LinkCase{"nccl", MakeNcclPair},
        LinkCase{"ucx", MakeUcxPair}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton::transfer
