// A GPU's memory: refusals, copies of every size and their order, and a GPU that is not there.
#include <gmock/gmock.h>

#include <chrono>
#include <future>

#include "absl/synchronization/notification.h"
#include "engine/device/cuda/cuda_memory.h"
#include "tests/gpu/gpu.h"
#include "tests/patience.h"

namespace baton::gpu {
namespace {

class MemoryGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    cuda_ = MakeKernels();
    ASSERT_NE(cuda_, nullptr) << "these tests need a GPU";
  }
  std::mt19937 random_{121};
  std::unique_ptr<kernels::Kernels> cuda_;
};

TEST_F(MemoryGpuTest, MemoryThatCantBeHadIsRefusedWithTheSum) {
  const auto refused = cuda_->memory().Allocate(int64_t{1} << 50);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("1125899906842624 bytes asked for"));
  EXPECT_GT(cuda_->memory().available(), 0);
  // The refusal is not the next operation's error.
  DeviceMatrix matrix(cuda_->memory(), 2, 8, tensor::DType::kF32);
  EXPECT_EQ(matrix.values(), std::vector<float>(16));
}

TEST_F(MemoryGpuTest, CopiesOfEverySizeArrive) {
  for (int64_t bytes : {int64_t{1}, int64_t{1000}, (int64_t{16} << 20) - 1, (int64_t{33} << 20) + 5}) {
    std::vector<uint8_t> out(static_cast<size_t>(bytes)), in(static_cast<size_t>(bytes));
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random_());
    auto buffer = cuda_->memory().Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_TRUE(cuda_->memory().Upload(out.data(), buffer->get(), bytes).ok());
    ASSERT_TRUE(cuda_->memory().Download(buffer->get(), in.data(), bytes).ok());
    EXPECT_TRUE(out == in) << bytes;
  }
}

TEST_F(MemoryGpuTest, AnUploadDoesNotWaitForAStepUnderWay) {
  auto& memory = dynamic_cast<device::cuda::CudaMemory&>(cuda_->memory());
  // Many parts and a bit, through both page-locked buffers.
  const int64_t bytes = (int64_t{33} << 20) + 5;
  std::vector<uint8_t> out(static_cast<size_t>(bytes), 7), in(out.size());
  auto buffer = memory.Allocate(bytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  ASSERT_EQ(cudaStreamSynchronize(memory.stream()), cudaSuccess);
  // The step: the compute stream stands still until it is let go.
  absl::Notification let_go;
  const auto hold = [](void* until) { static_cast<absl::Notification*>(until)->WaitForNotification(); };
  ASSERT_EQ(cudaLaunchHostFunc(memory.stream(), hold, &let_go), cudaSuccess);
  auto uploaded =
      std::async(std::launch::async, [&] { return memory.Upload(out.data(), buffer->get(), bytes); });
  EXPECT_EQ(uploaded.wait_for(Scaled(std::chrono::seconds(30))), std::future_status::ready)
      << "it waits for the step";
  EXPECT_EQ(cudaStreamQuery(memory.stream()), cudaErrorNotReady);
  let_go.Notify();
  EXPECT_TRUE(uploaded.get().ok());
  ASSERT_TRUE(memory.Download(buffer->get(), in.data(), bytes).ok());
  EXPECT_TRUE(in == out);
}

TEST_F(MemoryGpuTest, AnUploadComesAfterTheClearingOfNewMemory) {
  // So much takes the GPU far longer to clear than the host to copy a few bytes to its end.
  constexpr int64_t kBytes = int64_t{2} << 30, kEnd = 4096;
  const std::vector<uint8_t> out(kEnd, 7);
  for (int round = 0; round < 5; ++round) {
    auto buffer = cuda_->memory().Allocate(kBytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::byte* const end = buffer->get() + kBytes - kEnd;
    ASSERT_TRUE(cuda_->memory().Upload(out.data(), end, kEnd).ok());
    std::vector<uint8_t> in(out.size());
    ASSERT_TRUE(cuda_->memory().Download(end, in.data(), kEnd).ok());
    EXPECT_EQ(in, out) << "round " << round;
  }
}

// More pieces than a kernel takes, of more bytes than a part has, through a slab that comes round.
TEST_F(MemoryGpuTest, PiecesLeaveBesideAStepAndArriveWhereTheyLie) {
  auto& memory = dynamic_cast<device::cuda::CudaMemory&>(cuda_->memory());
  constexpr int64_t kPieces = 300, kPieceBytes = 16 << 10, kBytes = kPieces * kPieceBytes;
  std::vector<std::byte> out(kBytes), in(kBytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random_());
  auto buffer = memory.Allocate(2 * kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  auto outbound = memory.MakeOutbound(2 * kBytes);
  ASSERT_TRUE(outbound.ok()) << outbound.status();
  // Every second piece of the memory, in the other order.
  std::vector<device::Memory::Piece> places;
  std::vector<device::Outbound::Piece> leaving;
  for (int64_t p = 0; p < kPieces; ++p) {
    std::byte* const here = buffer->get() + 2 * (kPieces - 1 - p) * kPieceBytes;
    places.push_back({here, p * kPieceBytes, kPieceBytes});
    leaving.push_back({here, p * kPieceBytes, kPieceBytes});
  }
  for (int round = 0; round < 5; ++round) {
    out[0] = static_cast<std::byte>(round);
    ASSERT_TRUE(memory.UploadPieces(out.data(), places).ok());
    const uint64_t number = (*outbound)->Gather(memory.Mark(), leaving);
    // Later work on the GPU may write the pieces again.
    ASSERT_EQ(cudaMemsetAsync(buffer->get(), 0, 2 * kBytes, memory.stream()), cudaSuccess);
    memory.Fence();
    (*outbound)->Take(number, in.data());
    EXPECT_TRUE(in == out) << "round " << round;
  }
}

TEST(NoGpuTest, ADeviceThatIsNotThereIsNamed) {
  const auto kernels = kernels::MakeCudaKernels({.device = 4711});
  EXPECT_EQ(kernels.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(kernels.status().message()), testing::HasSubstr("4711"));
}

}  // namespace
}  // namespace baton::gpu
