// Progress that clients hear of their prompts, from real schedulers: it never falls, whatever happens to a
// worker, and all of the prompt is done before the first token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/fault/matrix.h"

namespace baton::fault {
namespace {

using testing::Contains;

constexpr RigOptions kAsked = {.progress = true, .turn = absl::Milliseconds(300)};

std::set<v1::Progress::State> StatesOf(const Seen& seen) {
  std::set<v1::Progress::State> states;
  for (const v1::Progress& one : seen.progress) states.insert(one.state());
  return states;
}

// Steps that were told of: numbers of tokens done.
size_t StepsOf(const Seen& seen) {
  std::set<uint32_t> steps;
  for (const v1::Progress& one : seen.progress) steps.insert(one.prompt_tokens_done());
  return steps.size();
}

void ExpectGood(const Seen& seen, uint32_t prompt = 1) {
  EXPECT_EQ(Judge(seen, Alone(prompt), false), "");
  ASSERT_FALSE(seen.progress.empty());
  EXPECT_EQ(seen.late_progress, 0);
  uint32_t done = 0;
  for (const v1::Progress& one : seen.progress) {
    EXPECT_GE(one.prompt_tokens_done(), done) << one.ShortDebugString();
    EXPECT_EQ(one.prompt_tokens(), kPromptTokens);
    EXPECT_LE(one.cached_tokens(), one.prompt_tokens_done());
    done = one.prompt_tokens_done();
  }
  EXPECT_EQ(done, kPromptTokens);
}

TEST(ProgressTest, OfAHandOffInItsChunks) {
  Rig rig(kAsked);
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  rig.Settle(absl::Minutes(10));
  ExpectGood(request.seen);
  EXPECT_GE(StepsOf(request.seen), 4u) << "a prompt of 70 tokens in chunks of 16";
  EXPECT_THAT(StatesOf(request.seen), Contains(v1::Progress::STATE_COMPUTING));
}

TEST(ProgressTest, OfAPromptThatTheDecodeWorkerComputes) {
  Rig rig(kAsked);
  for (PrefillNode& node : rig.prefill) rig.Kill(node);
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  rig.Settle(absl::Minutes(10));
  ExpectGood(request.seen);
  EXPECT_GE(StepsOf(request.seen), 3u);
}

TEST(ProgressTest, OfBlocksThatComeFromAPeer) {
  RigOptions options = kAsked;
  options.fetches = Fetches::kDecode;
  Rig rig(options);
  Rig::Warm(rig.prefill[1], Alone(1).prompt);
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  rig.Settle(absl::Minutes(10));
  ExpectGood(request.seen);
  EXPECT_THAT(StatesOf(request.seen), Contains(v1::Progress::STATE_FETCHING));
  EXPECT_GT(request.seen.progress.back().cached_tokens(), 0u);
}

TEST(ProgressTest, AFailoverTakesNothingBack) {
  Rig rig(kAsked);
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (StepsOf(request.seen) < 3) rig.Turn();
  rig.Kill(rig.prefill[0]);
  rig.Settle(absl::Minutes(10));
  ExpectGood(request.seen);
  EXPECT_EQ(request.seen.finished->relay().failovers(), 1u);
}

TEST(ProgressTest, NorDoesTheLossOfTheDecodeWorker) {
  Rig rig(kAsked);
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (StepsOf(request.seen) < 3) rig.Turn();
  rig.Kill(*request.decode);
  rig.Settle(absl::Minutes(10));
  ExpectGood(request.seen);
}

TEST(ProgressTest, ThoseThatWaitForThePrefillWorkerHearWhoIsAhead) {
  Rig rig(kAsked);
  std::vector<Request*> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(&rig.Ask(Alone(1).prompt, kSampling, kAnswer));
  rig.Settle(absl::Minutes(10));
  uint32_t most = 0;
  for (Request* request : requests) {
    ExpectGood(request->seen);
    for (const v1::Progress& one : request->seen.progress) most = std::max(most, one.requests_ahead());
  }
  EXPECT_GE(most, 1u);
}

TEST(ProgressTest, NorDoesAPreemptionOfAPromptByAnAnswer) {
  Rig rig(kAsked);
  for (PrefillNode& node : rig.prefill) rig.Kill(node);
  Request& answer = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  while (answer.seen.tokens.empty()) rig.Turn();
  Request& prompt = rig.Ask(Alone(2).prompt, kSampling, kAnswer);
  while (StepsOf(prompt.seen) < 2) rig.Turn();
  rig.FillPools(prompt, absl::Seconds(30));
  rig.Settle(absl::Minutes(10));
  ExpectGood(answer.seen);
  ExpectGood(prompt.seen, 2);
  EXPECT_GE(prompt.seen.finished->relay().preemptions(), 1u);
}

TEST(ProgressTest, NobodyHearsOfItUnasked) {
  Rig rig({.turn = absl::Milliseconds(300)});
  Request& request = rig.Ask(Alone(1).prompt, kSampling, kAnswer);
  rig.Settle(absl::Minutes(10));
  EXPECT_EQ(Judge(request.seen, Alone(1), false), "");
  EXPECT_TRUE(request.seen.progress.empty());
}

}  // namespace
}  // namespace baton::fault
