// Packing on the GPU: what one side packs the other unpacks, and a single wrong bit is seen.
#include "common/base/digest.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "tests/gpu/gpu.h"
#include "transfer/nccl/cuda_payload.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kPayloadSeed = 101;

class PayloadGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cuda = kernels::cuda::CudaKernels::Create({});
    ASSERT_TRUE(cuda.ok()) << "these tests need a GPU: " << cuda.status();
    cuda_ = *std::move(cuda);
    auto payload = transfer::CudaPayload::Create({&dynamic_cast<device::cuda::CudaMemory&>(cuda_->memory())});
    ASSERT_TRUE(payload.ok()) << payload.status();
    payload_ = *std::move(payload);
  }
  device::Memory::Buffer Upload(const std::vector<std::byte>& bytes) {
    auto buffer = *cuda_->memory().Allocate(static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(cuda_->memory().Upload(bytes.data(), buffer.get(), static_cast<int64_t>(bytes.size())).ok());
    return buffer;
  }
  std::vector<std::byte> Download(const std::byte* data, size_t bytes) {
    std::vector<std::byte> host(bytes);
    EXPECT_TRUE(cuda_->memory().Download(data, host.data(), static_cast<int64_t>(bytes)).ok());
    return host;
  }

  std::mt19937 random_{kPayloadSeed};
  std::unique_ptr<kernels::cuda::CudaKernels> cuda_;
  absl::Status Unpack(const std::byte* staging, int64_t size, transfer::Pieces to) {
    const uint64_t number = payload_->Unpack(staging, size, to);
    while (true) {
      if (std::optional<absl::Status> status = payload_->Unpacked(number); status.has_value()) return *status;
    }
  }

  std::unique_ptr<transfer::CudaPayload> payload_;
};

TEST_F(PayloadGpuTest, ComesOutAsItWentInAndAWrongBitIsSeen) {
  for (size_t count : {1, 3, 127, 128, 300}) {
    SCOPED_TRACE(testing::Message() << count << " pieces, seed " << kPayloadSeed);
    std::vector<size_t> sizes(count);
    size_t total = 0;
    for (size_t& size : sizes) total += size = 16 * (1 + random_() % 700);
    std::vector<std::byte> bytes(2 * total);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    // Pieces lie apart, in the reverse of their order.
    const auto source = Upload(bytes), target = Upload(std::vector<std::byte>(2 * total));
    std::vector<std::span<const std::byte>> from;
    std::vector<std::span<std::byte>> to;
    size_t at = 2 * total;
    std::vector<std::byte> expected;
    for (size_t size : sizes) {
      at -= 2 * size;
      from.emplace_back(source.get() + at, size);
      to.emplace_back(target.get() + at, size);
      expected.insert(expected.end(), bytes.begin() + static_cast<int64_t>(at),
                      bytes.begin() + static_cast<int64_t>(at + size));
    }
    const auto size = static_cast<int64_t>(total);
    // The link's own staging: what Memory gives is cleared in the order of the engine's stream, and packs are
    // not ordered after that.
    auto staging = *payload_->Stage(size + payload_->TrailerBytes(size));
    payload_->Pack(from, staging.get());
    EXPECT_EQ(Download(staging.get(), total), expected);
    // The checksums are CRC32C, as the CPU makes it.
    uint32_t crc;
    const int64_t trailer = (size + 15) / 16 * 16;
    ASSERT_TRUE(cuda_->memory().Download(staging.get() + trailer, &crc, sizeof crc).ok());
    EXPECT_EQ(crc, Crc32c(std::span(expected).first(std::min<size_t>(256, total))));

    ASSERT_TRUE(Unpack(staging.get(), size, to).ok());
    at = 2 * total;
    size_t done = 0;
    for (size_t piece : sizes) {
      at -= 2 * piece;
      EXPECT_TRUE(
          std::ranges::equal(Download(target.get() + at, piece), std::span(expected).subspan(done, piece)));
      done += piece;
    }

    const int64_t hurt = static_cast<int64_t>(random_() % total);
    auto byte = Download(staging.get() + hurt, 1);
    byte[0] ^= std::byte{16};
    ASSERT_TRUE(cuda_->memory().Upload(byte.data(), staging.get() + hurt, 1).ok());
    const auto before = Download(target.get(), 2 * total);
    EXPECT_EQ(Unpack(staging.get(), size, to).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(Download(target.get(), 2 * total), before) << "nothing is written";
  }
}

}  // namespace
}  // namespace baton::gpu
