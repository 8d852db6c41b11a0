#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/sampling/sampler.h"
#include "tests/unit/engine/sampling/specials.h"

namespace baton::sampling {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 100;

void ExpectRefused(const Params& params, const char* message) {
  const absl::Status status = params.Validate(kVocabulary);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(ParamsTest, DefaultsAndLimitsAreValid) {
  EXPECT_TRUE(Params{}.Validate(kVocabulary).ok());
  const Params low{.temperature = 0,
                   .top_k = 0,
                   .top_p = std::numeric_limits<float>::denorm_min(),
                   .min_p = 0,
                   .repetition_penalty = 0.01f,
                   .presence_penalty = -2,
                   .frequency_penalty = -2,
                   .logit_bias = {{TokenId(0), -100.0f}}};
  EXPECT_TRUE(low.Validate(kVocabulary).ok());
  const Params high{.temperature = 1000,
                    .top_k = 1'000'000,  // more than there are: all
                    .top_p = 1,
                    .min_p = 1,
                    .repetition_penalty = 10,
                    .presence_penalty = 2,
                    .frequency_penalty = 2,
                    .logit_bias = {{TokenId(99), 100.0f}}};
  EXPECT_TRUE(high.Validate(kVocabulary).ok());
}

TEST(ParamsTest, RefusalsNameFieldValueAndRange) {
  ExpectRefused({.temperature = -0.5f}, "temperature is -0.5: it must be finite and >= 0");
  ExpectRefused({.temperature = kNan}, "temperature is nan");
  ExpectRefused({.temperature = kInfinity}, "temperature is inf");
  ExpectRefused({.top_k = -1}, "top_k is -1: it must be >= 0");
  ExpectRefused({.top_p = 0}, "top_p is 0: it must be in (0, 1]");
  ExpectRefused({.top_p = 1.5f}, "top_p is 1.5");
  ExpectRefused({.top_p = kNan}, "top_p is nan");
  ExpectRefused({.min_p = -0.25f}, "min_p is -0.25: it must be in [0, 1]");
  ExpectRefused({.min_p = 1.25f}, "min_p is 1.25");
  ExpectRefused({.min_p = kNan}, "min_p is nan");
  ExpectRefused({.repetition_penalty = 0}, "repetition_penalty is 0: it must be finite and > 0");
  ExpectRefused({.repetition_penalty = kInfinity}, "repetition_penalty is inf");
  ExpectRefused({.repetition_penalty = kNan}, "repetition_penalty is nan");
  ExpectRefused({.presence_penalty = 2.5f}, "presence_penalty is 2.5: it must be in [-2, 2]");
  ExpectRefused({.presence_penalty = kNan}, "presence_penalty is nan");
  ExpectRefused({.frequency_penalty = -3}, "frequency_penalty is -3: it must be in [-2, 2]");
  ExpectRefused({.frequency_penalty = kNan}, "frequency_penalty is nan");
  ExpectRefused({.logit_bias = {{TokenId(100), 1.0f}}}, "logit_bias token is 100: it must be in [0, 100)");
  ExpectRefused({.logit_bias = {{TokenId(-1), 1.0f}}}, "logit_bias token is -1");
  ExpectRefused({.logit_bias = {{TokenId(3), 101.0f}}},
                "logit_bias of token 3 is 101: it must be in [-100, 100]");
  ExpectRefused({.logit_bias = {{TokenId(3), kNan}}}, "logit_bias of token 3 is nan");
  ExpectRefused({.logit_bias = {{TokenId(3), 1.0f}, {TokenId(3), 1.0f}}},
                "logit_bias token is 3: it must be there once");
}

}  // namespace
}  // namespace baton::sampling
