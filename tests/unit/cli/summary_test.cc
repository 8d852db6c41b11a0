#include "cli/show/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/base/random.h"

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

v1::Timing MakeTiming(const std::array<double, 6>& phases) {
  v1::Timing timing;
  timing.set_admit_seconds(phases[0]);
  timing.set_decode_queue_seconds(phases[1]);
  timing.set_prefill_queue_seconds(phases[2]);
  timing.set_prefill_seconds(phases[3]);
  timing.set_transfer_seconds(phases[4]);
  timing.set_first_token_seconds(phases[5]);
  timing.set_ttft_seconds(std::accumulate(phases.begin(), phases.end(), 0.0));
  return timing;
}

TEST(PhaseCellsTest, AddUpToTheBarAndShowWhatTookTime) {
  constexpr uint64_t kSeed = 7;
  for (uint64_t round = 0; round < 1000; ++round) {
    std::array<double, 6> phases;
    for (size_t i = 0; i < 6; ++i) {
      const double draw = UniformAt(kSeed, round * 6 + i);
      phases[i] = draw < 0.2 ? 0 : draw * draw * draw;
    }
    const std::array<int, 6> cells = PhaseCells(MakeTiming(phases), 40);
    EXPECT_EQ(std::accumulate(cells.begin(), cells.end(), 0), 40) << "seed " << kSeed << " round " << round;
    for (size_t i = 0; i < 6; ++i)
      EXPECT_EQ(cells[i] > 0, phases[i] > 0) << "seed " << kSeed << " round " << round;
  }
}

TEST(PhaseCellsTest, NothingTookNoTime) {
  EXPECT_EQ(PhaseCells(MakeTiming({}), 40), (std::array<int, 6>{}));
  // Broken clocks of a server must not break the client.
  const std::array<int, 6> cells = PhaseCells(MakeTiming({-1, 0, 0, 2, 0, 0}), 10);
  EXPECT_EQ(std::accumulate(cells.begin(), cells.end(), 0), 10);
}

TEST(RenderSummaryTest, SaysWhatHappened) {
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_STOP_STRING);
  finished.set_stop_match("\n");
  finished.mutable_usage()->set_prompt_tokens(1532);
  finished.mutable_usage()->set_decode_cached_tokens(512);
  finished.mutable_usage()->set_prefill_cached_tokens(992);
  finished.mutable_usage()->set_completion_tokens(128);
  *finished.mutable_timing() = MakeTiming({0.0004, 0.0001, 0, 0.038, 0.003, 0.0017});
  finished.mutable_timing()->set_tpot_seconds(0.004);
  finished.mutable_timing()->set_e2e_seconds(0.6);
  finished.mutable_relay()->set_prefill_worker("prefill-1");
  finished.mutable_relay()->set_decode_worker("decode-0");
  finished.mutable_relay()->set_link("host");
  finished.mutable_relay()->set_shipped_blocks(64);
  finished.mutable_relay()->set_shipped_bytes(3 << 20);
  finished.mutable_relay()->set_failovers(1);
  EXPECT_EQ(RenderSummary(finished, {}).find("cost"), std::string::npos) << "there is no price";
  EXPECT_EQ(RenderSummary(finished, {}).find("drafts"), std::string::npos) << "nothing was drafted";
  finished.mutable_usage()->set_drafted_tokens(1'200);
  finished.mutable_usage()->set_accepted_tokens(1'100);
  EXPECT_THAT(RenderSummary(finished, {}), HasSubstr("1,200 tokens drafted, 1,100 of them the answer's"));
  finished.mutable_cost()->set_currency("EUR");
  finished.mutable_cost()->set_picos(2'034'500'000'000);
  const std::string text = RenderSummary(finished, {});
  EXPECT_THAT(text, HasSubstr("1,532 tokens: 512 cached on decode, 992 on prefill, 28 computed"));
  EXPECT_THAT(text, HasSubstr("128 tokens: stop string \"\\n\""));
  EXPECT_THAT(text,
              HasSubstr("prefill-1 -> decode-0 over \"host\": 64 blocks, 3 MiB shipped; 1 failed hand-off"));
  EXPECT_THAT(text, HasSubstr("2.0345 EUR"));
  EXPECT_THAT(text, HasSubstr("= TTFT          43.2 ms"));
  EXPECT_THAT(text, HasSubstr("4.00 ms per token, 250.0 tokens/s"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << "colours where there are none";

  Terminal wide;
  wide.colour = true;
  wide.utf8 = true;
  EXPECT_THAT(RenderSummary(finished, wide), HasSubstr("prefill-1 → decode-0"));
}

TEST(RenderSummaryTest, ALocalPrefillHasNoLink) {
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_STOP_TOKEN);
  finished.mutable_relay()->set_decode_worker("decode-0");
  finished.mutable_relay()->set_link("local");
  const std::string text = RenderSummary(finished, {});
  EXPECT_THAT(text, HasSubstr("decode-0 prefilled the prompt itself"));
  EXPECT_THAT(text, HasSubstr("end of answer"));
  EXPECT_EQ(text.find("TPOT"), std::string::npos) << "a single token has no pace";
}

}  // namespace
}  // namespace baton::cli
