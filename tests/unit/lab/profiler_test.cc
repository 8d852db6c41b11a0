#include "lab/bench/profiler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::lab::bench {
namespace {

constexpr double kBase = 4e-3, kToken = 60e-6, kPair = 3e-9, kStepBase = 2e-3, kStepSequence = 1e-4;
constexpr double kKvBytes = 4096;

// A request alone on its workers, or together with others just like it that begin and end with it.
RequestRecord Answered(double at, int64_t prompt, int64_t cached, int64_t tokens, double step) {
  RequestRecord record;
  record.intended = absl::UnixEpoch() + absl::Seconds(at);
  record.prompt_tokens = prompt;
  record.output_tokens = tokens;
  Outcome& outcome = record.outcome;
  outcome.tokens = tokens;
  outcome.sent = record.intended;
  outcome.first_token = record.intended + absl::Seconds(1);
  outcome.last_token = outcome.first_token + absl::Seconds(step * static_cast<double>(tokens - 1));
  outcome.end = outcome.last_token;
  v1::Finished& finished = outcome.finished.emplace();
  const double u = static_cast<double>(prompt - cached), c = static_cast<double>(cached);
  finished.mutable_timing()->set_prefill_seconds(kBase + kToken * u + kPair * u * (c + u / 2));
  finished.mutable_timing()->set_transfer_seconds(7e-3);
  finished.mutable_timing()->set_ttft_seconds(0.5);
  finished.mutable_usage()->set_prefill_cached_tokens(static_cast<uint32_t>(cached));
  finished.mutable_relay()->set_prefill_worker("p0");
  finished.mutable_relay()->set_shipped_bytes(static_cast<uint64_t>(kKvBytes * static_cast<double>(prompt)));
  finished.mutable_placement()->set_predicted_ttft_seconds(0.4);
  return record;
}

TEST(ProfilerTest, FindsWhatTheRequestsWereMadeWith) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  Profiler profiler(1, 1);
  for (int group = 0; group < 120; ++group) {
    const int batch = 1 + static_cast<int>(UniformAt(seed, 3 * group) * 8);
    const auto prompt = 100 + static_cast<int64_t>(UniformAt(seed, 3 * group + 1) * 8000);
    const auto cached =
        static_cast<int64_t>(UniformAt(seed, 3 * group + 2) * static_cast<double>(prompt - 1));
    for (int i = 0; i < batch; ++i) {
      RequestRecord record = Answered(100.0 * group, prompt, cached, 50, kStepBase + kStepSequence * batch);
      record.outcome.finished->mutable_relay()->set_prefill_worker(fmt::format("p{}", i));
      profiler.Add(record);
    }
  }
  const auto fit = profiler.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  const auto prefill = [&](double u, double c) {
    return fit->at("prefill_base").get<double>() + fit->at("prefill_token").get<double>() * u +
           fit->at("prefill_pair").get<double>() * u * (c + u / 2);
  };
  EXPECT_NEAR(prefill(1000, 0), kBase + kToken * 1000 + kPair * 5e5, 5e-3);
  EXPECT_NEAR(prefill(4000, 4000), kBase + kToken * 4000 + kPair * 4000 * 6000, 2e-2);
  EXPECT_NEAR(fit->at("step_base").get<double>() + 4 * fit->at("step_sequence").get<double>(),
              kStepBase + 4 * kStepSequence, 4e-4);
  EXPECT_EQ(fit->at("kv_bytes_per_token").get<int64_t>(), 4096);
  EXPECT_NE(fit->at("comment").get<std::string>().find("TTFT was off by 20%"), std::string::npos)
      << fit->at("comment");
}

TEST(ProfilerTest, CountsWhatARequestTakesBesidesItsPhases) {
  Profiler profiler(1, 1);
  for (int i = 0; i < 40; ++i) {
    RequestRecord record = Answered(10.0 * i, 100 + 50 * i, 0, 10, kStepBase);
    const v1::Timing& timing = record.outcome.finished->timing();
    record.outcome.first_token =
        record.outcome.sent + absl::Seconds(timing.prefill_seconds() + timing.transfer_seconds() + 0.025);
    record.outcome.last_token = record.outcome.first_token + absl::Seconds(9 * kStepBase);
    profiler.Add(record);
  }
  const auto fit = profiler.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->at("request_overhead").get<double>(), 0.025, 1e-8);
}

// Workers tell a prompt's share of the steps that it had with others: what overlaps is not counted twice.
TEST(ProfilerTest, TimeThatPromptsShareIsCountedOnce) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  Profiler profiler(1, 1);
  for (int i = 0; i < 200; ++i) {
    const auto prompt = 100 + static_cast<int64_t>(UniformAt(seed, i) * 2000);
    const RequestRecord record = Answered(10.0 * i, prompt, 0, 10, kStepBase);
    profiler.Add(record);
    profiler.Add(record);
  }
  const auto fit = profiler.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  const double predicted = fit->at("prefill_base").get<double>() +
                           1000 * fit->at("prefill_token").get<double>() +
                           fit->at("prefill_pair").get<double>() * 1000 * 500;
  const double truth = kBase + kToken * 1000 + kPair * 1000 * 500;
  EXPECT_NEAR(predicted, truth, 0.15 * truth);
}

// A prefill worker that had what the decode worker had reports nothing beyond it.
TEST(ProfilerTest, APrefixThatBothHadWasNotComputed) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  Profiler profiler(1, 1);
  for (int i = 0; i < 200; ++i) {
    const auto blocks = static_cast<int64_t>(UniformAt(seed, 2 * i) * 200);
    const auto more = 1 + static_cast<int64_t>(UniformAt(seed, 2 * i + 1) * 800);
    RequestRecord record = Answered(10.0 * i, 16 * blocks + more, 16 * blocks, 10, kStepBase);
    v1::Finished& finished = *record.outcome.finished;
    finished.mutable_usage()->set_prefill_cached_tokens(0);
    finished.mutable_usage()->set_decode_cached_tokens(static_cast<uint32_t>(16 * blocks));
    finished.mutable_placement()->set_prefill_matched_blocks(static_cast<uint32_t>(blocks));
    profiler.Add(record);
  }
  const auto fit = profiler.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  const double predicted = fit->at("prefill_base").get<double>() +
                           400 * fit->at("prefill_token").get<double>() +
                           fit->at("prefill_pair").get<double>() * 400 * (1600 + 200);
  const double truth = kBase + kToken * 400 + kPair * 400 * 1800;
  EXPECT_NEAR(predicted, truth, 0.15 * truth);
}

// Forty prompts of different lengths, one at a time, whose hand-offs take what `transfer` says of their
// bytes. The first one is that of a new pair of workers: it makes the connection.
nlohmann::ordered_json FitHandoffs(const std::function<double(double)>& transfer, int handoffs = 40) {
  Profiler profiler(1, 1);
  for (int i = 0; i < 40; ++i) {
    RequestRecord record = Answered(10.0 * i, 100 + 50 * i, 0, 10, kStepBase * (1 + i));
    v1::Finished& finished = *record.outcome.finished;
    if (i < handoffs) {
      const auto bytes = static_cast<double>(finished.relay().shipped_bytes());
      finished.mutable_timing()->set_transfer_seconds(i == 0 ? 30 : transfer(bytes));
    } else {
      finished.mutable_relay()->Clear();
    }
    profiler.Add(record);
  }
  const auto fit = profiler.Fit();
  EXPECT_TRUE(fit.ok()) << fit.status();
  return fit.ok() ? *fit : nlohmann::ordered_json::object({{"comment", ""}});
}

std::string CommentOf(const nlohmann::ordered_json& profile) {
  return profile.at("comment").get<std::string>();
}

TEST(ProfilerTest, ALinkIsALatencyAndARateWithoutTheFirstHandoff) {
  const auto slow = FitHandoffs([](double bytes) { return 0.27 + bytes / 1e9; });
  EXPECT_NEAR(slow.at("link_latency").get<double>(), 0.27, 1e-6);
  EXPECT_NEAR(slow.at("link_bandwidth").get<double>(), 1e9, 1e3);
  // Compute hides the beginning of each: that is no latency below zero.
  const auto hidden = FitHandoffs([](double bytes) { return std::max(0.0, bytes / 1e9 - 2e-3); });
  EXPECT_EQ(hidden.at("link_latency").get<double>(), 0);
  EXPECT_GT(hidden.at("link_bandwidth").get<double>(), 1e9);
}

TEST(ProfilerTest, ALinkThatHandoffsDoNotTellIsLeftOut) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  for (const auto& profile : {FitHandoffs([](double) { return 7e-3; }), FitHandoffs([&](double bytes) {
                                return 0.3 * UniformAt(seed, draws++) - bytes / 1e9;
                              }),
                              FitHandoffs([](double bytes) { return bytes / 1e9; }, 8)}) {
    EXPECT_FALSE(profile.contains("link_bandwidth")) << profile;
    EXPECT_FALSE(profile.contains("link_latency"));
    EXPECT_NE(CommentOf(profile).find("the link was not measured"), std::string::npos) << profile;
    EXPECT_EQ(profile.at("kv_bytes_per_token").get<int64_t>(), 4096);
  }
  EXPECT_TRUE(FitHandoffs([](double bytes) { return bytes / 1e9; }, 9).contains("link_bandwidth"));
}

// The longer, the sooner: nothing that a profile could say of tokens.
TEST(ProfilerTest, RefusesWhatDoesNotGrowWithTheLoad) {
  for (const bool prefill : {true, false}) {
    Profiler profiler(1, 1);
    for (int batch = 1; batch <= 10; ++batch) {
      const double shrinks = 1e-3 * (11 - batch);
      RequestRecord record =
          Answered(100.0 * batch, 200 * batch, 0, 10, prefill ? kStepBase * batch : shrinks);
      if (prefill) record.outcome.finished->mutable_timing()->set_prefill_seconds(shrinks);
      for (int i = 0; i < batch; ++i) profiler.Add(record);
    }
    const auto fit = profiler.Fit();
    ASSERT_TRUE(absl::IsFailedPrecondition(fit.status())) << *fit;
    const std::string message(fit.status().message());
    EXPECT_NE(message.find(prefill ? "longer prompts" : "--concurrency"), std::string::npos) << message;
    EXPECT_NE(message.find("--prompt-tokens"), std::string::npos) << message;
  }
}

TEST(ProfilerTest, SaysWhatIsMissing) {
  Profiler profiler(1, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(profiler.Fit().status()));
  for (int i = 0; i < 30; ++i) profiler.Add(Answered(10.0 * i, 100, 0, 1, 0));
  const auto fit = profiler.Fit();
  ASSERT_TRUE(absl::IsFailedPrecondition(fit.status()));
  EXPECT_NE(std::string(fit.status().message()).find("--output-tokens"), std::string::npos);
}

}  // namespace
}  // namespace baton::lab::bench
