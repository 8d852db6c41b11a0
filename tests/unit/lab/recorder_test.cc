#include "lab/bench/recorder.h"

#include <gtest/gtest.h>

namespace baton::lab::bench {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

// Meant for `intended`, sent at `sent`, first token at `first`, then one every `gap`; seconds after the
// start.
RequestRecord Record(double intended, double sent, double first, double gap, int tokens) {
  RequestRecord record;
  record.intended = kStart + absl::Seconds(intended);
  record.prompt_tokens = 100;
  record.output_tokens = tokens;
  Outcome& outcome = record.outcome;
  outcome.sent = kStart + absl::Seconds(sent);
  outcome.first_token = kStart + absl::Seconds(first);
  outcome.last_token = outcome.first_token + absl::Seconds(gap) * (tokens - 1);
  outcome.gaps.assign(tokens - 1, static_cast<float>(gap));
  outcome.end = outcome.last_token;
  outcome.tokens = tokens;
  outcome.finished.emplace();
  outcome.finished->mutable_timing()->set_admit_seconds(0.25);
  outcome.finished->mutable_timing()->set_prefill_queue_seconds(0.5);
  outcome.finished->mutable_relay()->set_link("host");
  return record;
}

TEST(RecorderTest, MeasuresFromWhenARequestWasMeantToBeSent) {
  Recorder recorder({});
  // Sent 3 s late: the wait is the user's, whoever is to blame.
  recorder.Add(Record(1, 4, 4.5, 0.1, 11));
  const Summary& summary = recorder.summary();
  EXPECT_DOUBLE_EQ(summary.ttft.Percentile(0.5), 3.5);
  EXPECT_DOUBLE_EQ(summary.lateness.Max(), 3);
  EXPECT_NEAR(summary.tpot.Percentile(0.5), 0.1, 1e-9);
  EXPECT_NEAR(summary.e2e.Percentile(0.5), 4.5, 1e-9);
  EXPECT_EQ(summary.itl.count(), 10);
  EXPECT_NEAR(summary.itl.Percentile(0.5), 0.1, 1e-4);
  EXPECT_DOUBLE_EQ(summary.queue.Max(), 0.75);
  EXPECT_NEAR(summary.seconds, 4.5, 1e-9);
}

TEST(RecorderTest, CountsTokensThatCameInBunches) {
  Recorder recorder({});
  recorder.Add(Record(0, 0, 0.5, 0.1, 11));
  EXPECT_EQ(recorder.summary().bunched, 0);
  RequestRecord record = Record(0, 0, 0.5, 0.1, 11);
  // As long in all, by threes.
  record.outcome.gaps = {0.3F, 0.005F, 0.005F, 0.3F, 0.005F, 0.005F, 0.3F, 0.005F, 0.005F, 0.07F};
  recorder.Add(record);
  EXPECT_EQ(recorder.summary().bunched, 6);
}

TEST(RecorderTest, GoodputNeedsBothAndFailuresAreNotGood) {
  RecorderOptions options;
  options.slo = {absl::Seconds(1), absl::Milliseconds(50)};
  Recorder recorder(options);
  recorder.Add(Record(0, 0, 0.5, 0.01, 5));  // good
  recorder.Add(Record(0, 0, 1.5, 0.01, 5));  // late
  recorder.Add(Record(0, 0, 0.5, 0.2, 5));   // slow
  recorder.Add(Record(0, 0, 1.0, 0, 1));     // just in time; one token has no pace
  RequestRecord failed = Record(0, 0, 0.1, 0.01, 5);
  failed.outcome.status = absl::UnavailableError("gone");
  recorder.Add(failed);
  EXPECT_EQ(*recorder.summary().good, 2);
  EXPECT_EQ(recorder.summary().succeeded, 4);
  EXPECT_EQ(recorder.summary().failed, 1);
}

TEST(RecorderTest, WithoutAnSloThereIsNoGoodput) {
  Recorder recorder({});
  recorder.Add(Record(0, 0, 0.5, 0.01, 5));
  EXPECT_FALSE(recorder.summary().good.has_value());
}

TEST(RecorderTest, AnAnswerOfTheWrongLengthIsAFailureUnlessItMayEndEarly) {
  RequestRecord record = Record(0, 0, 0.5, 0.01, 5);
  record.output_tokens = 6;
  Recorder strict({});
  strict.Add(record);
  EXPECT_EQ(strict.summary().failed, 1);
  RecorderOptions options;
  options.exact_length = false;
  Recorder lenient(options);
  lenient.Add(record);
  EXPECT_EQ(lenient.summary().succeeded, 1);
}

TEST(RecorderTest, OnlyCancellationsOfOurOwnAreNotFailures) {
  RequestRecord record = Record(0, 0, 0.5, 0.01, 5);
  record.outcome.status = absl::CancelledError("");
  Recorder recorder({});
  recorder.Add(record);
  EXPECT_EQ(recorder.summary().failed, 1) << "nobody cancelled this one here";
  recorder.BeginCutOff();
  recorder.Add(record);
  EXPECT_EQ(recorder.summary().cut_off, 1);
  record.outcome.status = absl::InternalError("");
  recorder.Add(record);
  EXPECT_EQ(recorder.summary().failed, 2);
}

TEST(RecorderTest, ErrorsAreCountedByCodeWithTheFirstMessage) {
  Recorder recorder({});
  for (const char* message : {"first", "second"}) {
    RequestRecord record = Record(0, 0, 0.5, 0.01, 5);
    record.outcome.status = absl::ResourceExhaustedError(message);
    recorder.Add(record);
  }
  ASSERT_EQ(recorder.summary().errors.size(), 1u);
  const Summary::Error& error = recorder.summary().errors.at("RESOURCE_EXHAUSTED");
  EXPECT_EQ(error.count, 2);
  EXPECT_EQ(error.first_message, "first");
}

}  // namespace
}  // namespace baton::lab::bench
