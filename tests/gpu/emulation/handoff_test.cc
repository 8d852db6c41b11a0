// A hand-off between two engines on the emulated runtime, over the nccl link: the decode worker goes on where
// the prefill worker ended, with as many ranks or others, while both compute something else.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <optional>

#include "common/base/mailbox.h"
#include "engine/device/cuda/cuda_memory.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/gpu/emulation/engine_sequence.h"
#include "tests/gpu/emulation/runtime.h"
#include "transfer/nccl/cuda_payload.h"
#include "transfer/nccl/nccl_link.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kHandoffSeeds = 3;
constexpr int64_t kPromptTokens = 37;

std::unique_ptr<transfer::CudaPayload> PayloadOf(engine::Engine& engine) {
  std::vector<device::cuda::CudaMemory*> memories;
  for (device::Memory* memory : engine.memories())
    memories.push_back(&dynamic_cast<device::cuda::CudaMemory&>(*memory));
  return *transfer::CudaPayload::Create(std::move(memories));
}

// Two workers and what joins them. The test's thread is the engine thread of both.
struct Pair {
  Pair(int from, int to) {
    std::vector<int> first(static_cast<size_t>(from)), second(static_cast<size_t>(to));
    for (int r = 0; r < from; ++r) first[static_cast<size_t>(r)] = r;
    for (int r = 0; r < to; ++r) second[static_cast<size_t>(r)] = from + r;
    prefill = Load(from, first);
    decode = Load(to, second);
    packs = PayloadOf(*prefill);
    unpacks = PayloadOf(*decode);
    const auto post = [this](absl::AnyInvocable<void()> task) { return tasks.PostAlways(std::move(task)); };
    const auto ask = [this](const std::string&, const transfer::Meeting& meeting,
                            transfer::LinkSender::Answer answer) {
      sender->Meet(meeting, std::move(answer));
    };
    sender = *transfer::NcclLink::Create(nccl.Api(1), *packs, clock, Incarnation(1), post, ask, {});
    receiver = *transfer::NcclLink::Create(nccl.Api(2), *unpacks, clock, Incarnation(2), post, ask, {});
  }
  void RunTasks(absl::Duration wait) {
    for (auto& task : tasks.WaitAndTakeAll(wait)) task();
  }

  transfer::FakeNccl nccl;
  MonotonicClock clock;
  Mailbox<absl::AnyInvocable<void()>> tasks{1000};
  std::unique_ptr<engine::Engine> prefill, decode;
  std::unique_ptr<transfer::CudaPayload> packs, unpacks;
  std::unique_ptr<transfer::NcclLink> sender, receiver;
};

double Apart(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    norm += std::pow(a[i], 2);
  }
  return std::sqrt(difference / norm);
}

struct Shape {
  int from, to;  // ranks
};

class HandoffTest : public testing::TestWithParam<Shape> {};

TEST_P(HandoffTest, DecodeGoesOnWhereThePromptEnded) {
  for (uint32_t seed = 1; seed <= kHandoffSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::StartMachine({.gpus = GetParam().from + GetParam().to, .seed = seed});
    Pair pair(GetParam().from, GetParam().to);
    ASSERT_NE(pair.prefill, nullptr);
    ASSERT_NE(pair.decode, nullptr);
    Sequence prompt(*pair.prefill, kPromptTokens + 4), answer(*pair.decode, kPromptTokens + 4);
    Sequence before(*pair.decode, 24), other(*pair.decode, 24);
    // Nobody overwrites bytes that leave, and bytes that arrive disturb no step under way.
    (void)before.Step(20, true);
    std::deque<fleet::v1::KvChunk> chunks;
    size_t arrived = 0;
    (void)prompt.Step(kPromptTokens, true, [&](int layer) {
      const auto pieces = prompt.Pieces(layer);
      const std::vector<std::span<const std::byte>> read_only(pieces.begin(), pieces.end());
      fleet::v1::KvChunk& chunk = chunks.emplace_back();
      chunk.set_incarnation(2);
      ASSERT_TRUE(pair.sender->Ship(read_only, chunk).ok());
    });
    (void)other.Step(20, true, [&](int layer) {
      pair.receiver->Receive(chunks[static_cast<size_t>(layer)], "prefill:1", answer.Pieces(layer),
                             [&](absl::Status status) {
                               EXPECT_TRUE(status.ok()) << status;
                               ++arrived;
                             });
      pair.RunTasks(absl::ZeroDuration());
    });
    while (arrived < chunks.size()) {
      (void)before.Step(1, true);
      if (before.computed() == 24) before.Arrived(20);
      pair.RunTasks(absl::Milliseconds(1));
    }
    for (int layer = 0; layer < pair.prefill->config().layers; ++layer) {
      EXPECT_TRUE(Contents(*pair.decode, answer.Pieces(layer)) ==
                  Contents(*pair.prefill, prompt.Pieces(layer)))
          << "layer " << layer;
    }
    // Both go on from the KV that they have; sums of other ranks round elsewhere.
    answer.Arrived(kPromptTokens);
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> here = answer.Step(1, true), there = prompt.Step(1, true);
      if (GetParam().from == GetParam().to) {
        EXPECT_TRUE(here == there) << "step " << step;
      } else {
        EXPECT_LE(Apart(there, here), 0.04) << "step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HandoffTest,
                         testing::Values(Shape{1, 1}, Shape{2, 2}, Shape{2, 1}, Shape{1, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.from) + "to" + std::to_string(info.param.to);
                         });

}  // namespace
}  // namespace baton::gpu
