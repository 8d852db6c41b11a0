// The benchmark's arithmetic against numbers worked out by hand from the shape of Llama 3.1 8B.
#include "tests/gpu/figures.h"

#include <gtest/gtest.h>

namespace baton::gpu {
namespace {

using tensor::DType;

kv::KvLayout LayoutOf(DType dtype) {
  return {.layers = 8, .kv_heads = 8, .head_dim = 128, .key_dtype = dtype, .value_dtype = dtype};
}

// Per layer: 6144 x 4096 (q, k, v), 4096 x 4096 (output), 2 x 14336 x 4096 (gate, up), 4096 x 14336 (down) =
// 218,103,808 parameters. The whole model has 8,030,261,248: these, the head, an embedding of the head's
// size, and 65 norms of 4,096.
TEST(FiguresTest, ParametersAreThoseOfTheModel) {
  EXPECT_EQ(kLayersParameters, 32 * int64_t{218'103'808});
  EXPECT_EQ(kHeadParameters, 525'336'576);
  EXPECT_EQ(kLayersParameters + 2 * kHeadParameters + 65 * 4096, 8'030'261'248);
}

// 15,009,316,864 bytes of weights, and 128 KiB of KV per token.
TEST(FiguresTest, ADecodeStepReadsWeightsOnceAndEachSequencesKv) {
  EXPECT_EQ(DecodeBytes(1, 0), 15'009'316'864.0);
  EXPECT_EQ(DecodeBytes(1, 1024), 15'143'534'592.0);
  EXPECT_EQ(DecodeBytes(256, 1024), 49'369'055'232.0);
}

TEST(FiguresTest, CausalAttentionMeetsEachKeyOnce) {
  EXPECT_EQ(AttentionFlops(1), 16'384);  // 32 heads x 128 x 2 products x 2
  for (int64_t rows : {2, 17, 1024, 8192}) {
    double flops = 0;
    for (int64_t row = 0; row < rows; ++row) flops += 16'384.0 * static_cast<double>(row + 1);
    EXPECT_EQ(AttentionFlops(rows), flops) << rows;
  }
}

TEST(FiguresTest, APrefillMultipliesTheHeadOncePerSequence) {
  // 2 x 6,979,321,856 + 2 x 525,336,576 + 32 x 16,384.
  EXPECT_EQ(PrefillFlops(1, 1), 15'009'841'152.0);
  // 2 x 2048 x 6,979,321,856 + 1,050,673,152 + 32 x 16,384 x 2,098,176.
  EXPECT_EQ(PrefillFlops(1, 2048), 29'688'401'494'016.0);
  EXPECT_EQ(PrefillFlops(4, 2048), 4 * PrefillFlops(1, 2048));
}

// A token's keys and values in one layer: 2 x 8 heads x 128 numbers, and for f8 and i8 2 x 8 scales of 4
// bytes.
TEST(FiguresTest, DecodeAttentionReadsWhatTheLayoutTakes) {
  EXPECT_EQ(AttentionBytes(LayoutOf(DType::kBF16), 1, 8192), 8192 * 4096.0);
  EXPECT_EQ(AttentionBytes(LayoutOf(DType::kF8), 16, 4096), 16 * 4096 * (2048.0 + 64));
  EXPECT_EQ(AttentionBytes(LayoutOf(DType::kI8), 64, 2048), 64 * 2048 * (2048.0 + 64));
}

}  // namespace
}  // namespace baton::gpu
