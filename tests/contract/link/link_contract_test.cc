// Promises of every link (link_contract.h), run against each implementation: a new link adds a row to the
// instantiation below.
#include "tests/contract/link/link_contract.h"

#include "common/base/mailbox.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/fakes/far_memory.h"
#include "transfer/host_link.h"
#include "transfer/nccl/nccl_link.h"
#include "transfer/staged_host_link.h"
#include "transfer/ucx/open_ucx.h"
#include "transfer/ucx/ucx_link.h"

namespace baton::transfer {
namespace {

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
