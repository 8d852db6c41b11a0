// Two ranks on the emulated runtime: the backend's own host code, its kernels and its links, whose GPUs do
// their work as late and in as bad an order as real ones may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>

#include "common/base/digest.h"
#include "engine/device/cuda/cuda_memory.h"
#include "engine/measure.h"
#include "tests/gpu/emulation/engine_sequence.h"
#include "tests/gpu/emulation/runtime.h"
#include "transfer/nccl/cuda_payload.h"
#include "transfer/staged_host_link.h"

namespace baton::gpu {
namespace {

using testing::HasSubstr;

constexpr uint32_t kSeeds = 6;

// Ships layers in one of two ways, and afterwards compares what left with what the blocks hold in the end.
class Shipper {
 public:
  explicit Shipper(engine::Engine& engine) : engine_(engine) {}
  virtual ~Shipper() = default;
  virtual void Ship(std::vector<std::span<std::byte>> pieces) = 0;
  virtual std::string Shipped(size_t index) = 0;

  // Since the last call.
  void Compare() {
    ASSERT_FALSE(pieces_.empty());
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const std::string held = Contents(engine_, pieces_[i]);
      EXPECT_NE(held, std::string(held.size(), '\0'));
      EXPECT_TRUE(Shipped(i) == held) << "shipment " << i << " left before it was computed";
    }
    pieces_.clear();
  }

 protected:
  engine::Engine& engine_;
  std::vector<std::vector<std::span<std::byte>>> pieces_;
};

class HostShipper final : public Shipper {
 public:
  // Room for a few layers only: the slab comes round.
  explicit HostShipper(engine::Engine& engine)
      : Shipper(engine),
        link_(*transfer::StagedHostLinkSender::Create(engine.store().memory(), 16 << 10, [] {})) {}
  void Ship(std::vector<std::span<std::byte>> pieces) override {
    const std::vector<std::span<const std::byte>> read_only(pieces.begin(), pieces.end());
    if (pieces_.empty()) chunks_.clear();
    EXPECT_TRUE(link_->Ship(read_only, chunks_.emplace_back()).ok());
    pieces_.push_back(std::move(pieces));
  }
  std::string Shipped(size_t index) override {
    link_->Flush(absl::InfiniteDuration());
    return chunks_[index].data();
  }

 private:
  std::deque<fleet::v1::KvChunk> chunks_;  // they stay where they are
  std::unique_ptr<transfer::StagedHostLinkSender> link_;
};

class NcclShipper final : public Shipper {
 public:
  explicit NcclShipper(engine::Engine& engine) : Shipper(engine) {
    std::vector<device::cuda::CudaMemory*> memories;
    for (device::Memory* memory : engine.memories()) {
      memories.push_back(&dynamic_cast<device::cuda::CudaMemory&>(*memory));
    }
    first_ = memories.front();
    payload_ = *transfer::CudaPayload::Create(std::move(memories));
    // Taken before anything runs, as the link has it.
    for (int i = 0; i < 16; ++i) staging_.push_back(*payload_->Stage(1 << 16));
  }
  void Ship(std::vector<std::span<std::byte>> pieces) override {
    const std::vector<std::span<const std::byte>> read_only(pieces.begin(), pieces.end());
    payload_->Pack(read_only, staging_.at(pieces_.size()).get());
    pieces_.push_back(std::move(pieces));
  }
  std::string Shipped(size_t index) override {
    size_t bytes = 0;
    for (const auto piece : pieces_[index]) bytes += piece.size();
    std::string shipped(bytes, '\0');
    EXPECT_TRUE(first_->Download(staging_[index].get(), shipped.data(), static_cast<int64_t>(bytes)).ok());
    return shipped;
  }

 private:
  device::cuda::CudaMemory* first_;
  std::unique_ptr<transfer::CudaPayload> payload_;
  std::vector<device::Memory::Buffer> staging_;
};

std::unique_ptr<Shipper> MakeShipper(const std::string& link, engine::Engine& engine) {
  if (link == "host") return std::make_unique<HostShipper>(engine);
  return std::make_unique<NcclShipper>(engine);
}

class RanksTest : public testing::TestWithParam<const char*> {};

TEST_P(RanksTest, ALayerLeavesOnceAllRanksHaveWrittenIt) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::StartMachine({.gpus = 2, .seed = seed});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    const auto shipper = MakeShipper(GetParam(), *engine);
    Sequence sequence(*engine, 37);
    (void)sequence.Step(37, true, [&](int layer) { shipper->Ship(sequence.Pieces(layer)); });
    shipper->Compare();
  }
}

TEST_P(RanksTest, TheGpuHasWorkWhileALayerLeaves) {
  int busy = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    emulation::StartMachine({.gpus = 2, .seed = seed});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    const cudaStream_t compute =
        dynamic_cast<device::cuda::CudaMemory&>(*engine->memories().front()).stream();
    const auto shipper = MakeShipper(GetParam(), *engine);
    Sequence sequence(*engine, 37);
    (void)sequence.Step(37, true, [&](int layer) {
      shipper->Ship(sequence.Pieces(layer));
      if (cudaStreamQuery(compute) == cudaErrorNotReady) ++busy;
    });
  }
  EXPECT_GT(busy, 0);
}

TEST_P(RanksTest, WhatLeftIsNotWhatTheNextStepWrites) {
  std::vector<std::string> expected;
  for (uint32_t seed = 0; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::StartMachine({.gpus = 2, .seed = seed});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    const auto shipper = MakeShipper(GetParam(), *engine);
    Sequence sequence(*engine, 32);
    (void)sequence.Step(32, false, [&](int layer) { shipper->Ship(sequence.Pieces(layer)); });
    // The first time it is looked at before its blocks go to another sequence.
    for (int layer = 0; seed == 0 && layer < engine->config().layers; ++layer)
      expected.push_back(Contents(*engine, sequence.Pieces(layer)));
    sequence.Restart(8);
    (void)sequence.Step(32, true);
    for (size_t layer = 0; layer < expected.size(); ++layer)
      EXPECT_TRUE(shipper->Shipped(layer) == expected[layer]) << "layer " << layer;
  }
}

TEST_P(RanksTest, CachedBlocksLeaveRightAfterAStepWithoutLogits) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::StartMachine({.gpus = 2, .seed = seed});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    const auto shipper = MakeShipper(GetParam(), *engine);
    Sequence sequence(*engine, 32);
    (void)sequence.Step(32, false);
    for (int layer = engine->config().layers - 1; layer >= 0; --layer) shipper->Ship(sequence.Pieces(layer));
    shipper->Compare();
  }
}

TEST_P(RanksTest, WhatADecodeStepWroteLeavesWhole) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::StartMachine({.gpus = 2, .seed = seed});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    const auto shipper = MakeShipper(GetParam(), *engine);
    Sequence sequence(*engine, 12);
    (void)sequence.Step(9, true);
    // Plain, captured, replayed.
    for (int step = 0; step < 3; ++step) {
      (void)sequence.Step(1, true, [&](int layer) {
        if (layer >= 4) shipper->Ship(sequence.Pieces(layer));
      });
      shipper->Compare();
    }
  }
}

// One chunk for the stores of all ranks, in several parts and tables.
TEST(RanksLinkTest, APayloadOfTheHostLinkArrivesBesideAStep) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::StartMachine({.gpus = 2, .seed = seed});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    std::mutex mutex;
    std::vector<absl::AnyInvocable<void()>> posted;
    transfer::StagedHostLinkReceiver receiver(engine->store().memory(), [&](absl::AnyInvocable<void()> task) {
      const std::scoped_lock lock(mutex);
      posted.push_back(std::move(task));
      return true;
    });
    // Two blocks that another step leaves alone, and a chunk of random bytes for them.
    const std::vector<BlockId> blocks = *engine->pool().Allocate(2);
    std::vector<std::span<std::byte>> pieces;
    for (const BlockId block : blocks)
      engine->store().AppendPieces(block, 0, engine->config().layers, pieces);
    fleet::v1::KvChunk chunk;
    std::mt19937 random(seed);
    for (const auto piece : pieces) {
      for (size_t i = 0; i < piece.size(); ++i) chunk.mutable_data()->push_back(static_cast<char>(random()));
    }
    chunk.set_crc32c(Crc32c(chunk.data()));
    std::optional<absl::Status> told;
    Sequence sequence(*engine, 20);
    (void)sequence.Step(20, true, [&](int layer) {
      if (layer == 0) receiver.Receive(chunk, "sender:1", pieces, [&](absl::Status done) { told = done; });
    });
    while (!told.has_value()) {
      const std::scoped_lock lock(mutex);
      for (auto& task : posted) task();
      posted.clear();
    }
    EXPECT_TRUE(told->ok()) << *told;
    EXPECT_TRUE(Contents(*engine, pieces) == chunk.data());
    engine->pool().Release(blocks);
  }
}

INSTANTIATE_TEST_SUITE_P(Links, RanksTest, testing::Values("host", "nccl"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RanksEngineTest, TwoRanksComputeWhatOneDoes) {
  std::vector<std::vector<float>> logits[2];
  for (const int tp : {1, 2}) {
    emulation::StartMachine({.gpus = tp, .seed = 3});
    const auto engine = Load(tp);
    ASSERT_NE(engine, nullptr);
    Sequence sequence(*engine, 24);
    logits[tp - 1].push_back(sequence.Step(20, true));
    for (int step = 0; step < 4; ++step) logits[tp - 1].push_back(sequence.Step(1, true));
  }
  for (size_t step = 0; step < logits[0].size(); ++step) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < logits[0][step].size(); ++i) {
      difference += std::pow(logits[0][step][i] - logits[1][step][i], 2);
      norm += std::pow(logits[0][step][i], 2);
    }
    EXPECT_LE(std::sqrt(difference), 0.04 * std::sqrt(norm)) << "step " << step;
  }
}

// Several workers of a node: each has its own of the node's GPUs, and not always the first.
TEST(RanksEngineTest, RanksComputeOnTheGpusThatAreNamed) {
  for (const std::vector<int>& devices : {std::vector<int>{2, 3}, {3, 1}, {}}) {
    emulation::StartMachine({.gpus = 4, .seed = 6});
    const auto loaded = engine::Engine::Load({.model_folder = BATON_SOURCE_DIR "/models/baton-tiny",
                                              .backend = "cuda",
                                              .threads = 2,
                                              .tp = 2,
                                              .kv_bytes = 1 << 20,
                                              .devices = devices});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    engine::Engine& engine = **loaded;
    std::vector<int> used;
    for (device::Memory* memory : engine.memories()) {
      used.push_back(dynamic_cast<device::cuda::CudaMemory&>(*memory).device());
    }
    EXPECT_EQ(used, devices.empty() ? std::vector<int>({0, 1}) : devices);
    Sequence sequence(engine, 12);
    EXPECT_FALSE(sequence.Step(8, true).empty());
    EXPECT_FALSE(sequence.Step(1, true).empty());
    EXPECT_EQ(emulation::Contexts(), std::set<int>(used.begin(), used.end()));
  }
  emulation::StartMachine({.gpus = 2});
  const auto absent = engine::Engine::Load(
      {.model_folder = BATON_SOURCE_DIR "/models/baton-tiny", .backend = "cuda", .devices = {2}});
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kUnavailable) << absent.status();
}

// Clock of a machine whose GPUs have nothing left to do whenever somebody looks at it.
class IdleMachineClock final : public Clock {
 public:
  absl::Time Now() const override {
    const bool loading = looks_++ == 0;
    EXPECT_TRUE(loading || emulation::Idle()) << "look " << looks_;
    return machine_.Now();
  }
  int looks() const { return looks_; }

 private:
  mutable int looks_ = 0;
  const MonotonicClock machine_;
};

// A chunk without logits leaves nothing to wait for but the chunk.
TEST(RanksEngineTest, AStepIsMeasuredUntilTheGpuHasDoneIt) {
  emulation::StartMachine({.gpus = 1, .seed = 8});
  const auto engine = Load(1);
  ASSERT_NE(engine, nullptr);
  const IdleMachineClock clock;
  (void)engine::MeasureStepCost(*engine, {.chunk_tokens = 64, .budget = absl::Hours(1)}, clock);
  EXPECT_GT(clock.looks(), 10);
}

TEST(RanksEngineTest, AnEngineWithRecordedStepsEnds) {
  emulation::StartMachine({.gpus = 2, .seed = 4});
  auto engine = Load(2);
  ASSERT_NE(engine, nullptr);
  {
    Sequence sequence(*engine, 8);
    (void)sequence.Step(4, true);
    for (int step = 0; step < 4; ++step) (void)sequence.Step(1, true);
  }
  engine.reset();
}

// Prompts and answers by turns, each longer than the last, so that everything has to grow.
void GrowingSteps(engine::Engine& engine) {
  for (const int64_t tokens : {8, 40, 90}) {
    Sequence sequence(engine, tokens + 6);
    (void)sequence.Step(tokens, true);
    for (int step = 0; step < 5; ++step) (void)sequence.Step(1, true);
  }
}

TEST(RanksEngineTest, RanksRecordAndReplayTheSameSteps) {
  for (const int reusing_gpu : {0, 1}) {
    emulation::StartMachine({.gpus = 2, .seed = 5, .reusing_gpu = reusing_gpu});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    GrowingSteps(*engine);
  }
}

TEST(RanksEngineTest, NothingIsAllocatedWhileAPeersSumWaits) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    emulation::StartMachine({.gpus = 2, .seed = seed, .allocations_wait = true});
    const auto engine = Load(2);
    ASSERT_NE(engine, nullptr);
    GrowingSteps(*engine);
  }
}

TEST(GpuStartTest, AGpuThatTheBuildHasNoCodeForIsRefusedInWords) {
  emulation::StartMachine({.major = 12, .has_code = false});
  const auto kernels = kernels::MakeCudaKernels({});
  EXPECT_EQ(kernels.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(kernels.status().message()), HasSubstr("compute capability 12.0"));
  EXPECT_THAT(std::string(kernels.status().message()), HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=120-real"));
}

TEST(GpuStartTest, AKernelThatTheGpuLacksIsRefusedByTheNameOfTheFlag) {
  emulation::StartMachine({.major = 8});
  const auto kernels = kernels::MakeCudaKernels({.prefill_attention = "wgmma"});
  EXPECT_EQ(kernels.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(kernels.status().message()), HasSubstr("--prefill-attention wgmma"));
}

TEST(GpuStartTest, KvOnGpusHasTheModelsPrecisionAndAllThatIsLeft) {
  emulation::StartMachine({});
  const auto engine =
      engine::Engine::Load({.model_folder = BATON_SOURCE_DIR "/models/baton-tiny", .backend = "cuda"});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->store().layout().key_dtype, tensor::DType::kBF16);
  EXPECT_EQ((*engine)->store().layout().value_dtype, tensor::DType::kBF16);
  // Nine tenths of what the machine says is free.
  EXPECT_EQ((*engine)->store().blocks(),
            static_cast<int64_t>(0.9 * (int64_t{1} << 30)) / (*engine)->store().layout().block_bytes());
}

}  // namespace
}  // namespace baton::gpu
