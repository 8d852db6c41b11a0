#include "worker/kv_link.h"

#include <gtest/gtest.h>

namespace baton::worker {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(KvLinkTest, StagingMemoryIsFourStepsWithinBounds) {
  const kv::KvLayout large = {.layers = 80,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .key_dtype = tensor::DType::kBF16,
                              .value_dtype = tensor::DType::kBF16};
  EXPECT_EQ(KvLink::StagingBytes(16384, large), 2048 * kMiB) << "four steps are 21 GB";
  EXPECT_EQ(KvLink::StagingBytes(0, large), 256 * kMiB) << "a worker that ships nothing";
  kv::KvLayout middle = large;
  middle.layers = 32;
  EXPECT_EQ(KvLink::StagingBytes(2048, middle), 4 * 2048 * middle.block_bytes() / kBlockTokens);
  kv::KvLayout huge = large;
  huge.kv_heads = 8192;
  EXPECT_EQ(KvLink::StagingBytes(16, huge), 8 * huge.block_bytes()) << "some blocks fit in any case";
}

}  // namespace
}  // namespace baton::worker
