// The reference draws by the definition (draw.h), the sampler by its own, faster ways: the same tokens.
#include "tests/unit/engine/kernels/draw_check.h"

namespace baton::kernels {
namespace {

TEST(DrawTest, TheReferenceDrawsWhatTheSamplerDraws) {
  const auto reference = MakeReferenceKernels();
  for (int vocabulary : {1, 2, 33, 1000}) ExpectDrawsOfTheSampler(*reference, vocabulary, 200, 17);
}

TEST(DrawTest, TheReferencePenalisesWhatTheSamplerPenalises) {
  const auto reference = MakeReferenceKernels();
  for (int vocabulary : {1, 2, 33, 1000}) ExpectPenaltiesOfTheSampler(*reference, vocabulary, 60, 18);
}

TEST(DrawTest, ABorderBelongsToTheUpperToken) { ExpectBordersOfTheUpperToken(*MakeReferenceKernels()); }

TEST(DrawTest, TheCpuLeavesItToTheSampler) {
  const auto cpu = MakeCpuKernels({.threads = 1, .isa = ""});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ((*cpu)->sampler(), nullptr);
}

}  // namespace
}  // namespace baton::kernels
