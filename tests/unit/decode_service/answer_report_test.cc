#include "decode_service/answer_report.h"

#include <gtest/gtest.h>

namespace baton::decode_service {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

// The phases, in seconds, add up to the time to the first token.
void ExpectPhases(const v1::Timing& timing, double decode_queue, double prefill_queue, double prefill,
                  double transfer, double first_token) {
  EXPECT_NEAR(timing.decode_queue_seconds(), decode_queue, 1e-9);
  EXPECT_NEAR(timing.prefill_queue_seconds(), prefill_queue, 1e-9);
  EXPECT_NEAR(timing.prefill_seconds(), prefill, 1e-9);
  EXPECT_NEAR(timing.transfer_seconds(), transfer, 1e-9);
  EXPECT_NEAR(timing.first_token_seconds(), first_token, 1e-9);
  EXPECT_NEAR(timing.ttft_seconds(), decode_queue + prefill_queue + prefill + transfer + first_token, 1e-9);
}

fleet::v1::PrefillDone Done(double queue, double compute, uint32_t cached) {
  fleet::v1::PrefillDone done;
  done.set_queue_seconds(queue);
  done.set_compute_seconds(compute);
  done.set_cached_tokens(cached);
  return done;
}

AnswerText::End Stop() {
  return {.reason = v1::FINISH_REASON_STOP_TOKEN, .stop_match = "end", .stop_token = TokenId(7)};
}

TEST(AnswerReportTest, TokensUnderMarksThatAreComputedAreWrittenOnce) {
  const std::vector<kv::PrefixLease> leases = {{.lease_class = kv::LeaseClass::k1h, .blocks = 2},
                                               {.lease_class = kv::LeaseClass::k5m, .blocks = 5}};
  for (const uint32_t cached : {0u, 16u, 32u, 48u, 80u, 96u}) {
    SCOPED_TRACE(cached);
    AnswerReport report;
    report.Arrived(At(0), "decode-0", 100);
    report.Marked(leases);
    report.Reserved(At(1), cached / 32 * 16);
    report.PrefillStarted(At(2));
    report.LogitsArrived(At(9), Done(2, 3, cached));
    report.Retained(64);
    const fleet::v1::Opening opening = report.Opening();
    const v1::Usage usage = report.Finished(0, Stop(), 1, 0).usage();
    EXPECT_EQ(usage.decode_cached_tokens() + usage.prefill_cached_tokens(), cached);
    EXPECT_EQ(usage.written_hour_tokens(), cached >= 32 ? 0 : 32 - cached);
    EXPECT_EQ(usage.written_five_minutes_tokens(), cached >= 80 ? 0 : 80 - std::max(cached, 32u));
    EXPECT_EQ(usage.retained_tokens(), 64u);
    EXPECT_EQ(opening.usage().written_hour_tokens(), usage.written_hour_tokens());
    EXPECT_EQ(opening.usage().written_five_minutes_tokens(), usage.written_five_minutes_tokens());
  }
}

TEST(AnswerReportTest, AHandOffsPhasesAddUp) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);
  report.Reserved(At(1), 32);
  report.PrefillStarted(At(2));
  report.LogitsArrived(At(9), Done(2, 3, 48));
  EXPECT_FALSE(report.first_token_sent());
  EXPECT_NEAR(report.transfer_seconds(), 2, 1e-9);
  const fleet::v1::Opening opening = report.Opening();
  EXPECT_NEAR(opening.timing().prefill_seconds(), 3, 1e-9);
  EXPECT_EQ(opening.usage().decode_cached_tokens(), 32u);
  EXPECT_EQ(opening.usage().prefill_cached_tokens(), 16u) << "what the decode worker lacked";
  EXPECT_EQ(report.TokenSent(At(10)), absl::Seconds(10));
  EXPECT_EQ(report.TokenSent(At(12)), absl::Seconds(2));
  EXPECT_EQ(report.TokenSent(At(16)), absl::Seconds(4));
  report.Shipped("nccl", 5, 5000);
  report.HandedOff("prefill-1");

  const v1::Finished finished = report.Finished(3, Stop(), 3, 2);
  EXPECT_EQ(finished.choice(), 3u);
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(finished.stop_match(), "end");
  EXPECT_EQ(finished.stop_token_id(), 7);
  // 1 s between the reservation and the hand-off is counted with the first token.
  ExpectPhases(finished.timing(), 1, 2, 3, 2, 2);
  EXPECT_NEAR(finished.timing().tpot_seconds(), 3, 1e-9);
  EXPECT_NEAR(finished.timing().e2e_seconds(), 16, 1e-9);
  EXPECT_EQ(finished.usage().prompt_tokens(), 100u);
  EXPECT_EQ(finished.usage().completion_tokens(), 3u);
  EXPECT_EQ(finished.relay().decode_worker(), "decode-0");
  EXPECT_EQ(finished.relay().prefill_worker(), "prefill-1");
  EXPECT_EQ(finished.relay().link(), "nccl");
  EXPECT_EQ(finished.relay().shipped_blocks(), 5u);
  EXPECT_EQ(finished.relay().shipped_bytes(), 5000u);
}

TEST(AnswerReportTest, ResumedTokensAreNoTokensOfThePrompt) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);  // handed off with 60 resumed tokens
  report.Reserved(At(1), 32);
  report.LogitsArrived(At(2), Done(0, 0, 144));
  EXPECT_EQ(report.Opening().usage().prefill_cached_tokens(), 68u);
}

TEST(AnswerReportTest, APromptComputedHereWaitsForWhatItDidNotCompute) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 20);
  report.Reserved(At(1), 0);
  report.PrefillStarted(At(2));
  report.ComputedHere(absl::Seconds(1));
  report.ComputedHere(absl::Seconds(2));
  report.PromptComputed(At(6));
  report.TokenSent(At(7));
  const v1::Finished finished = report.Finished(0, Stop(), 1, 0);
  ExpectPhases(finished.timing(), 1, 2, 3, 0, 1);
  EXPECT_EQ(finished.timing().tpot_seconds(), 0) << "there was one token";
  EXPECT_EQ(finished.relay().link(), "local");
}

TEST(AnswerReportTest, WhatComesAfterTheFirstTokenChangesNoPhase) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 20);
  report.Reserved(At(1), 0);
  report.ComputedHere(absl::Seconds(2));
  report.PromptComputed(At(3));
  report.TokenSent(At(3));
  report.Preempted();
  report.PrefillStarted(At(4));
  report.LogitsArrived(At(9), Done(1, 1, 16));
  report.ComputedHere(absl::Seconds(5));
  report.PromptComputed(At(20));
  const v1::Finished finished = report.Finished(0, Stop(), 1, 0);
  ExpectPhases(finished.timing(), 1, 0, 2, 0, 0);
  EXPECT_EQ(finished.usage().prefill_cached_tokens(), 0u);
  EXPECT_EQ(finished.relay().preemptions(), 1u);
}

TEST(AnswerReportTest, FailedHandOffsCountAsTransferAndFailovers) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 64);
  report.Reserved(At(0), 0);
  report.PrefillStarted(At(0));
  report.Shipped("host", 2, 200);
  report.HandOffFailed();
  report.PrefillStarted(At(4));
  report.Shipped("host", 3, 300);
  report.LogitsArrived(At(6), Done(0, 2, 0));
  report.HandedOff("prefill-2");
  report.TokenSent(At(6));
  const v1::Finished finished = report.Finished(0, Stop(), 1, 0);
  ExpectPhases(finished.timing(), 0, 0, 2, 4, 0);
  EXPECT_EQ(finished.relay().failovers(), 1u);
  EXPECT_EQ(finished.relay().shipped_blocks(), 5u);
}

// Name, start and end of each span, in seconds since the arrival, which is 1 s after the call came.
std::vector<std::string> SpansOf(const AnswerReport& report, std::string_view failure = "") {
  std::vector<std::string> texts;
  const telemetry::RequestSpans::Sink sink = [&texts](const std::vector<telemetry::Span>& spans) {
    for (const telemetry::Span& span : spans) {
      const auto second = [&](absl::Time time) {
        return std::to_string(absl::ToInt64Seconds(time - spans.front().start) - 1);
      };
      texts.push_back(span.name + " " + second(span.start) + " " + second(span.end) + span.error);
    }
  };
  const FakeClock clock(At(20));
  auto spans = std::make_unique<telemetry::RequestSpans>(sink, telemetry::TraceContext(), clock, "whole",
                                                         telemetry::Span::Kind::kServer, At(-1));
  report.AddSpans(failure, *spans);
  spans = nullptr;
  return texts;
}

TEST(AnswerReportTest, SpansAreThePhases) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);
  report.Reserved(At(1), 32);
  report.PrefillStarted(At(1));
  report.LogitsArrived(At(9), Done(2, 3, 48));
  report.TokenSent(At(10));
  report.TokenSent(At(16));
  EXPECT_EQ(SpansOf(report),
            (std::vector<std::string>{"whole -1 20", "decode.queue 0 1", "transfer 6 9", "decode 10 16"}));
}

TEST(AnswerReportTest, SpansOfAPromptThatIsComputedHere) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);
  report.Reserved(At(1), 32);
  report.Fetched(At(4), "peer", 32, absl::Seconds(2), 64);
  report.ComputedHere(absl::Seconds(3));
  report.PromptComputed(At(9));
  report.TokenSent(At(10));
  EXPECT_EQ(SpansOf(report, " CANCELLED"),
            (std::vector<std::string>{"whole -1 20 CANCELLED", "decode.queue 0 1", "fetch 2 4", "prefill 1 9",
                                      "prefill.queue 1 6", "prefill.compute 6 9", "decode 10 10"}));
}

TEST(AnswerReportTest, ARefusedRequestHasNoPhases) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);
  EXPECT_EQ(SpansOf(report), std::vector<std::string>{"whole -1 20"});
}

TEST(AnswerReportTest, FetchesOnBothWorkersAddUp) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);
  report.Reserved(At(0), 0);
  report.Fetched(At(3), "peer", 32, absl::Seconds(3), 32);
  report.PrefillStarted(At(3));
  fleet::v1::PrefillDone done = Done(1, 2, 64);
  done.set_fetched_tokens(16);
  done.set_fetched_from("other");
  done.set_fetch_seconds(0.5);
  report.LogitsArrived(At(6), done);
  report.TokenSent(At(6));
  const v1::Finished finished = report.Finished(0, Stop(), 1, 0);
  ExpectPhases(finished.timing(), 0, 4, 2, 0, 0);
  EXPECT_EQ(finished.usage().decode_cached_tokens(), 32u);
  EXPECT_EQ(finished.usage().prefill_cached_tokens(), 32u);
  EXPECT_EQ(finished.relay().fetched_tokens(), 48u);
  EXPECT_EQ(finished.relay().fetched_from(), "other");
}

TEST(AnswerReportTest, AFetchThatBroughtNothingTakesTimeOnly) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 100);
  report.Reserved(At(0), 16);
  report.Fetched(At(3), "peer", 0, absl::Seconds(3), 16);
  report.PrefillStarted(At(3));
  report.LogitsArrived(At(5), Done(0, 2, 0));
  report.TokenSent(At(5));
  const v1::Finished finished = report.Finished(0, Stop(), 1, 0);
  ExpectPhases(finished.timing(), 0, 3, 2, 0, 0);
  EXPECT_EQ(finished.relay().fetched_tokens(), 0u);
  EXPECT_TRUE(finished.relay().fetched_from().empty());
}

// The resumed tokens were all of the answer: nothing was computed here.
TEST(AnswerReportTest, WithoutATokenThereIsNoTtft) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 10);
  report.Reserved(At(0), 0);
  const v1::Finished finished = report.Finished(0, Stop(), 4, -1);
  EXPECT_EQ(finished.usage().completion_tokens(), 4u);
  EXPECT_EQ(finished.timing().ttft_seconds(), 0);
  EXPECT_EQ(finished.timing().e2e_seconds(), 0);
}

// Resumed tokens lie in cached blocks too, but are not the prompt's.
TEST(AnswerReportTest, CachedTokensAreAtMostThePrompts) {
  AnswerReport report;
  report.Arrived(At(0), "decode-0", 20);
  report.Reserved(At(0), 32);
  EXPECT_EQ(report.Opening().usage().decode_cached_tokens(), 20u);
}

// A pace is compared by what the steps held, not by what is there when the answer ends.
TEST(AnswerReportTest, TellsWhatItsStepsHeldOnAverage) {
  AnswerReport report;
  report.Arrived(At(0), "d", 10);
  EXPECT_FALSE(report.steps().has_value());
  report.TokenSent(At(1), {.steps = 100, .seconds = 40, .answers = 5000, .context = 90'000});
  EXPECT_FALSE(report.steps().has_value()) << "no step lies behind the first token";
  report.TokenSent(At(2), {.steps = 101, .seconds = 41, .answers = 5064, .context = 96'000});
  report.TokenSent(At(3), {.steps = 104, .seconds = 42, .answers = 5068, .context = 96'400});
  ASSERT_TRUE(report.steps().has_value());
  EXPECT_EQ(report.steps()->seconds(), 0.5);
  EXPECT_EQ(report.steps()->answers(), 17);
  EXPECT_EQ(report.steps()->context_tokens(), 1600);
}

}  // namespace
}  // namespace baton::decode_service
