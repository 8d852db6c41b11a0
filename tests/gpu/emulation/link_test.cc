// The nccl link with payloads on GPUs of the emulated runtime, of one rank, of two, and from two to one:
// CudaPayload and its kernels on both sides, over a NCCL with scripted failures.
#include <gmock/gmock.h>

#include "common/base/mailbox.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/status.h"
#include "common/transfer/nccl/cuda_payload.h"
#include "common/transfer/nccl/nccl_link.h"
#include "tests/contract/link/link_contract.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/gpu/emulation/runtime.h"

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
  GpuSetup(int senders, int receivers) : sending(0, senders), receiving(senders, receivers) {}

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
  emulation::StartMachine({.gpus = senders + receivers, .seed = kMachineSeed});
  return std::make_shared<GpuSetup>(senders, receivers);
}

LinkPair PairOf(const std::shared_ptr<GpuSetup>& setup) {
  const auto memories = [](const Ranks& ranks) {
    return std::vector<device::Memory*>(ranks.on_gpus.begin(), ranks.on_gpus.end());
  };
  return {.sender = {setup, setup->sender.get()},
          .receiver = {setup, setup->receiver.get()},
          .run_engine =
              [setup = setup.get()] {
                for (auto& task : setup->engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
              },
          .sends_from = memories(setup->sending),
          .receives_into = memories(setup->receiving),
          .unit = 16};
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, LinkContractTest,
    testing::Values(LinkCase{"nccl_of_gpus", [] { return PairOf(MakeSetup(1, 1)); }},
                    LinkCase{"nccl_of_two_ranks", [] { return PairOf(MakeSetup(2, 2)); }},
                    LinkCase{"nccl_from_two_ranks_to_one", [] { return PairOf(MakeSetup(2, 1)); }},
                    LinkCase{"nccl_from_one_rank_to_two", [] { return PairOf(MakeSetup(1, 2)); }}),
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
      v1::KvChunk chunk;
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
