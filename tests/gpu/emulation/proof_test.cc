// That the proof made at start refuses kernels that are wrong: in the place of wgmma, the mma kernel with
// something changed. That it accepts the right one: WgmmaProofGpuTest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kernels/cuda/prefill_proof.h"

namespace baton::kernels::cuda {
namespace {

using ::testing::HasSubstr;

absl::Status ProofOf(decltype(&WgmmaPrefillAttention) kernel) {
  return ProveWgmma(device::HostMemory(), nullptr, kernel);
}

// The mma kernel, after `change` to what it is asked.
template <typename Change>
absl::Status ProofOfChanged(Change) {
  return ProofOf([](const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                    const StepView& step, const KvView& kv, void* out, int64_t out_stride,
                    cudaStream_t stream) {
    HeadShape its_shape = shape;
    StepView its_step = step;
    KvView its_kv = kv;
    Change()(its_shape, its_step, its_kv);
    PrefillAttention(q, q_stride, dtype, its_shape, its_step, its_kv, out, out_stride, stream);
    return cudaSuccess;
  });
}

TEST(EmulatedProofTest, AcceptsWhatIsRight) {
  const absl::Status proof = ProofOfChanged([](HeadShape&, StepView&, KvView&) {});
  EXPECT_TRUE(proof.ok()) << proof;
}

TEST(EmulatedProofTest, RefusesWhatIsWrong) {
  EXPECT_FALSE(ProofOfChanged([](HeadShape& shape, StepView&, KvView&) { shape.scale *= 1.25f; }).ok());
  EXPECT_FALSE(ProofOfChanged([](HeadShape& shape, StepView&, KvView&) { shape.window = 0; }).ok());
  EXPECT_FALSE(ProofOfChanged([](HeadShape& shape, StepView&, KvView&) {
                 shape.window += shape.window > 0 ? 1 : 0;
               }).ok());
  EXPECT_FALSE(ProofOfChanged([](HeadShape&, StepView&, KvView& kv) { kv.values_at = kv.keys_at; }).ok());
  const absl::Status tile = ProofOfChanged([](HeadShape&, StepView& step, KvView&) { --step.tile_count; });
  EXPECT_THAT(std::string(tile.message()), HasSubstr("values differ"));
  EXPECT_THAT(std::string(tile.message()), HasSubstr("nan and not"));
}

TEST(EmulatedProofTest, RefusesAKernelThatDoesNotStart) {
  const absl::Status proof =
      ProofOf([](const void*, int64_t, DType, const HeadShape&, const StepView&, const KvView&, void*,
                 int64_t, cudaStream_t) { return cudaErrorNoKernelImageForDevice; });
  EXPECT_THAT(std::string(proof.message()), HasSubstr("launch failed with CUDA's error 209"));
}

}  // namespace
}  // namespace baton::kernels::cuda
