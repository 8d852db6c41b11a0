// Which prefill kernel a GPU gets, and what the operator is told; no GPU needed.
#include "engine/kernels/cuda/prefill_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace baton::kernels::cuda {
namespace {

using testing::HasSubstr;

TEST(PrefillChoiceTest, WgmmaWhereItProvedItself) {
  const PrefillChoice choice = ChoosePrefill(9, 0, "0 (H200)", [] { return absl::OkStatus(); });
  EXPECT_EQ(choice.kernel, PrefillKernel::kWgmma);
  EXPECT_EQ(choice.warning, "");
}

TEST(PrefillChoiceTest, MmaAndAWarningWhereTheProofFailed) {
  for (const absl::Status& failure :
       {absl::DataLossError("heads of 64: 3 of 9 values differ"),
        absl::InternalError("copying from the GPU: an illegal instruction was encountered")}) {
    const PrefillChoice choice = ChoosePrefill(9, 0, "3 (H200)", [&] { return failure; });
    EXPECT_EQ(choice.kernel, PrefillKernel::kMma);
    EXPECT_THAT(choice.warning, HasSubstr("GPU 3 (H200)"));
    EXPECT_THAT(choice.warning, HasSubstr(std::string(failure.message())));
    EXPECT_THAT(choice.warning, HasSubstr("please report this line"));
  }
}

TEST(PrefillChoiceTest, OtherGpusAreNotAsked) {
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {9, 1}, {10, 0}, {10, 3}, {12, 0}}) {
    bool asked = false;
    const PrefillChoice choice = ChoosePrefill(major, minor, "0", [&] {
      asked = true;
      return absl::OkStatus();
    });
    EXPECT_EQ(choice.kernel, PrefillKernel::kMma);
    EXPECT_EQ(choice.warning, "") << major << "." << minor;
    EXPECT_FALSE(asked);
  }
}

TEST(PrefillChoiceTest, ResultsAgreeWithinRoundingAndNoFurther) {
  const std::vector<float> mma = {0.5f, -2, 0, 0.03f, 1};
  EXPECT_TRUE(Agree(mma, mma, "").ok());
  std::vector<float> rounded = mma;
  rounded[0] += 0.5f / 256, rounded[1] -= 2.0f / 256, rounded[2] = 1e-4f;
  EXPECT_TRUE(Agree(mma, rounded, "").ok());

  std::vector<float> wrong = rounded;
  wrong[3] = -0.03f, wrong[4] = 1.05f;
  const absl::Status status = Agree(mma, wrong, "heads of 64");
  EXPECT_THAT(std::string(status.message()), HasSubstr("heads of 64: 2 of 5 values differ, the worst, at 3"));
}

TEST(PrefillChoiceTest, WhatIsNoNumberNeverAgrees) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    EXPECT_FALSE(Agree(std::vector<float>{1, 2}, std::vector<float>{1, bad}, "").ok()) << bad;
    EXPECT_FALSE(Agree(std::vector<float>{1, bad}, std::vector<float>{1, 2}, "").ok()) << bad;
    EXPECT_FALSE(Agree(std::vector<float>{bad}, std::vector<float>{bad}, "").ok()) << bad;
  }
  EXPECT_THAT(std::string(Agree(std::vector<float>{1, 2, 3}, std::vector<float>{1, nan, 30}, "").message()),
              HasSubstr("2 of 3 values differ, the worst, at 1, is nan"));
}

}  // namespace
}  // namespace baton::kernels::cuda
