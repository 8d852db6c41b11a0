// The links with payloads on GPUs of the emulated runtime, CudaPayload and its kernels on both sides: nccl of
// one rank, of two, and from two to one, over a NCCL with scripted failures; ucx over the real UCX. Nobody
// owns GPU 0: what is done there is done by a thread that has chosen no GPU.
#include <gmock/gmock.h>

#include "common/base/mailbox.h"
#include "engine/device/cuda/cuda_memory.h"
#include "engine/device/cuda/status.h"
#include "tests/contract/link/link_contract.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/gpu/emulation/runtime.h"
#include "transfer/nccl/cuda_payload.h"
#include "transfer/nccl/nccl_link.h"
#include "transfer/staged_host_link.h"
#include "transfer/ucx/open_ucx.h"
#include "transfer/ucx/ucx_fabric.h"
#include "transfer/ucx/ucx_link.h"

namespace baton::transfer {
namespace {

constexpr uint32_t kMachineSeed = 12;

// The memories of a worker's ranks.
struct Ranks {
  Ranks(int first_gpu, int count) {
    for (int gpu = first_gpu; gpu < first_gpu + count; ++gpu) {
      EXPECT_TRUE(device::cuda::Use(gpu).ok());
      streams.push_back(*device::cuda::MakeStream(false));
      memories.push_back(*device::cuda::CudaMemory::Create(gpu, streams.back().get()));
      on_gpus.push_back(memories.back().get());
    }
    payload = *CudaPayload::Create(on_gpus);
  }

  std::vector<device::cuda::Stream> streams;
  std::vector<std::unique_ptr<device::cuda::CudaMemory>> memories;
  std::vector<device::cuda::CudaMemory*> on_gpus;
  std::unique_ptr<CudaPayload> payload;
};

struct GpuSetup {
  GpuSetup(int senders, int receivers) : sending(1, senders), receiving(1 + senders, receivers) {}

  FakeNccl nccl;
  MonotonicClock clock;
  Ranks sending, receiving;
  Mailbox<absl::AnyInvocable<void()>> engine{1000};
  NcclLink::Post post = [this](absl::AnyInvocable<void()> task) {
    return engine.PostAlways(std::move(task));
  };
  NcclLink::Ask ask = [this](const std::string&, const Meeting& meeting, LinkSender::Answer answer) {
    sender->Meet(meeting, std::move(answer));
  };
  NcclLinkOptions options{.staging_bytes = int64_t{1} << 20};
  std::unique_ptr<NcclLink> sender =
      *NcclLink::Create(nccl.Api(1), *sending.payload, clock, Incarnation(1), post, ask, options);
  std::unique_ptr<NcclLink> receiver =
      *NcclLink::Create(nccl.Api(2), *receiving.payload, clock, Incarnation(2), post, ask, options);
};

std::shared_ptr<GpuSetup> MakeSetup(int senders, int receivers) {
  emulation::StartMachine({.gpus = 1 + senders + receivers, .seed = kMachineSeed});
  return std::make_shared<GpuSetup>(senders, receivers);
}

std::vector<device::Memory*> MemoriesOf(const Ranks& ranks) {
  return {ranks.on_gpus.begin(), ranks.on_gpus.end()};
}

LinkPair PairOf(const std::shared_ptr<GpuSetup>& setup) {
  return {.sender = {setup, setup->sender.get()},
          .receiver = {setup, setup->receiver.get()},
          .run_engine =
              [setup = setup.get()] {
                for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
              },
          .sends_from = MemoriesOf(setup->sending),
          .receives_into = MemoriesOf(setup->receiving),
          .unit = 16};
}

// A fabric as a UCX built with CUDA sees it: its memory types and transports ask for the context of the
// thread that calls, and crash or leave the GPU aside without one.
class WatchedFabric final : public Fabric {
 public:
  WatchedFabric(std::unique_ptr<Fabric> fabric, int gpu) : fabric_(std::move(fabric)), gpu_(gpu) {}

  std::string version() const override { return fabric_->version(); }
  const std::string& address() const override { return fabric_->address(); }
  absl::StatusOr<std::string> Register(Region region, std::byte* data, int64_t bytes) override {
    return Watched().Register(region, data, bytes);
  }
  absl::StatusOr<Endpoint> Connect(const std::string& from, const std::string& address,
                                   const std::string& payload_key, const std::string& slot_key) override {
    return Watched().Connect(from, address, payload_key, slot_key);
  }
  void Read(Endpoint endpoint, Region region, uint64_t from, std::byte* to, int64_t bytes,
            uint64_t number) override {
    Watched().Read(endpoint, region, from, to, bytes, number);
  }
  void Notify(Endpoint endpoint, std::string_view notice) override { Watched().Notify(endpoint, notice); }
  void Close(Endpoint endpoint) override { Watched().Close(endpoint); }
  void Progress(std::vector<Event>& events) override { Watched().Progress(events); }
  bool idle() const override { return fabric_->idle(); }
  void Wait(absl::Duration most) override { Watched().Wait(most); }
  void Wake() override { fabric_->Wake(); }

 private:
  Fabric& Watched() {
    int gpu = 0;
    EXPECT_EQ(cudaGetDevice(&gpu), cudaSuccess);
    EXPECT_EQ(gpu, gpu_) << "UCX is called by a thread without the context of its memory's GPU";
    return *fabric_;
  }

  const std::unique_ptr<Fabric> fabric_;
  const int gpu_;
};

// Both workers in one process, each on a GPU of its own.
struct UcxSetup {
  Ranks sending{1, 1}, receiving{2, 1};
  MonotonicClock clock;
  Mailbox<absl::AnyInvocable<void()>> engine{1000};
  std::unique_ptr<UcxLink> sender, receiver;

  std::unique_ptr<UcxLink> Open(const Ranks& ranks, uint64_t incarnation) {
    // An emulated GPU's memory is the host's to UCX.
    auto fabric = std::make_unique<WatchedFabric>(*UcxFabric::Create(false), ranks.on_gpus.front()->device());
    return *UcxLink::Create(
        std::move(fabric), *ranks.payload, clock, Incarnation(incarnation),
        [this](absl::AnyInvocable<void()> task) { return engine.PostAlways(std::move(task)); },
        {.place = "cuda"});
  }
};

LinkPair MakeUcxPair() {
  emulation::StartMachine({.gpus = 3, .seed = kMachineSeed});
  const auto setup = std::make_shared<UcxSetup>();
  setup->sender = setup->Open(setup->sending, 1);
  setup->receiver = setup->Open(setup->receiving, 2);
  return {.sender = {setup, setup->sender.get()},
          .receiver = {setup, setup->receiver.get()},
          .run_engine =
              [setup = setup.get()] {
                for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
              },
          .from = "127.0.0.1:1",
          .sends_from = MemoriesOf(setup->sending),
          .receives_into = MemoriesOf(setup->receiving),
          .unit = 16};
}

// As a worker on a GPU has it whatever its --link is: peers fetch blocks by it.
LinkPair MakeStagedHostPair() {
  struct Setup {
    Ranks sending{1, 1}, receiving{2, 1};
    Mailbox<absl::AnyInvocable<void()>> engine{1000};
    std::unique_ptr<StagedHostLinkSender> sender =
        *StagedHostLinkSender::Create(*sending.on_gpus.front(), int64_t{1} << 20, [] {});
    StagedHostLinkReceiver receiver{*receiving.on_gpus.front(), [this](absl::AnyInvocable<void()> task) {
                                      return engine.PostAlways(std::move(task));
                                    }};
  };
  emulation::StartMachine({.gpus = 3, .seed = kMachineSeed});
  const auto setup = std::make_shared<Setup>();
  return {.sender = {setup, setup->sender.get()},
          .receiver = {setup, &setup->receiver},
          .run_engine =
              [setup = setup.get()] {
                for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
              },
          .sends_from = MemoriesOf(setup->sending),
          .receives_into = MemoriesOf(setup->receiving),
          .unit = 16};
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, LinkContractTest,
    testing::Values(LinkCase{"nccl_of_gpus", [] { return PairOf(MakeSetup(1, 1)); }},
                    LinkCase{"nccl_of_two_ranks", [] { return PairOf(MakeSetup(2, 2)); }},
                    LinkCase{"nccl_from_two_ranks_to_one", [] { return PairOf(MakeSetup(2, 1)); }},
                    LinkCase{"nccl_from_one_rank_to_two", [] { return PairOf(MakeSetup(1, 2)); }},
                    LinkCase{"ucx_of_gpus", MakeUcxPair}, LinkCase{"host_of_gpus", MakeStagedHostPair}),
    [](const auto& info) { return info.param.name; });

// It would take an address on the GPU for one of the host, and read there.
TEST(GpuUcxTest, AUcxThatReachesNoGpuIsRefused) {
  emulation::StartMachine({.seed = kMachineSeed});
  const Ranks ranks(0, 1);
  const absl::StatusOr<Ucx> ucx = OpenUcx(MemoriesOf(ranks));
  EXPECT_EQ(ucx.status().code(), absl::StatusCode::kFailedPrecondition) << ucx.status();
  EXPECT_THAT(ucx.status().message(), testing::HasSubstr("built with CUDA"));
}

class GpuContextTest : public testing::TestWithParam<LinkCase> {};

TEST_P(GpuContextTest, ALinkUsesTheGpusOfItsMemoryAndNoOther) {
  const LinkPair link = GetParam().make();
  const std::vector<size_t> sizes = {1600, 16, 2480};
  const std::vector<std::byte> bytes(4096, std::byte{3});
  {
    LinkPieces from(link.sends_from, sizes), to(link.receives_into, sizes);
    from.Write(bytes);
    std::optional<absl::Status> received;
    fleet::v1::KvChunk chunk;
    chunk.set_incarnation(2);
    ASSERT_TRUE(link.sender->Ship(from.from(), chunk).ok());
    absl::Notification ready;  // the chunk may be filled until then
    link.sender->WhenReady([&] { ready.Notify(); });
    ready.WaitForNotification();
    link.receiver->Receive(chunk, link.from, to.to(), [&](absl::Status status) { received = status; });
    while (!received.has_value()) link.run_engine();
    EXPECT_TRUE(received->ok()) << *received;
    EXPECT_EQ(to.Read(), bytes);
  }
  EXPECT_EQ(emulation::Contexts(), (std::set<int>{1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Links, GpuContextTest,
                         testing::Values(LinkCase{"nccl", [] { return PairOf(MakeSetup(1, 1)); }},
                                         LinkCase{"ucx", MakeUcxPair}, LinkCase{"host", MakeStagedHostPair}),
                         [](const auto& info) { return info.param.name; });

// On its way, so that only the checksums on the receiving GPU can tell: of the payload, at its ends and
// within, and of the checksums themselves.
TEST(GpuLinkTest, AWrongBitOnTheWayIsSeenAndNothingIsWritten) {
  const auto setup = MakeSetup(2, 1);
  const LinkPair link = PairOf(setup);
  const std::vector<size_t> sizes = {1600, 16, 2480};
  constexpr int64_t kBytes = 4096;
  for (const int64_t hurt : {int64_t{0}, int64_t{1700}, kBytes - 1, kBytes + 3}) {
    SCOPED_TRACE(testing::Message() << "byte " << hurt);
    LinkPieces from(link.sends_from, sizes), to(link.receives_into, sizes);
    from.Write(std::vector<std::byte>(kBytes, std::byte{3}));
    const std::vector<std::byte> before(kBytes, std::byte{7});
    to.Write(before);
    std::optional<absl::Status> received;
    const auto move = [&] {
      received.reset();
      fleet::v1::KvChunk chunk;
      chunk.set_incarnation(2);
      ASSERT_TRUE(link.sender->Ship(from.from(), chunk).ok());
      link.receiver->Receive(chunk, link.from, to.to(), [&](absl::Status status) { received = status; });
      while (!received.has_value()) link.run_engine();
    };
    setup->nccl.CorruptNext(hurt);
    move();
    EXPECT_EQ(received->code(), absl::StatusCode::kDataLoss) << *received;
    EXPECT_EQ(to.Read(), before);
    move();
    EXPECT_TRUE(received->ok()) << *received;
    EXPECT_EQ(to.Read(), std::vector<std::byte>(kBytes, std::byte{3}));
  }
}

}  // namespace
}  // namespace baton::transfer
