// `baton bench` and its runner against a scripted server.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/synchronization/mutex.h"
#include "lab/bench/load_client.h"
#include "lab/bench/runner.h"
#include "lab/bench/workload.h"
#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::lab::bench {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kSeed = 20261120;

// The tokens of every prompt, in the order of arrival at the server.
std::vector<std::vector<int32_t>> Prompts(const FakeInference& server) {
  std::vector<std::vector<int32_t>> prompts;
  for (const v1::GenerateRequest& request : server.generate_requests()) {
    prompts.emplace_back(request.token_ids().ids().begin(), request.token_ids().ids().end());
  }
  return prompts;
}

Json RunJson(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), {"--json", "-"});
  const cli::Outcome outcome = cli::RunBaton(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

TEST(BenchTest, ClosedLoopKeepsItsConcurrencyAndAsksForExactLengths) {
  FakeInference server({.generate = [](const v1::GenerateRequest& request) {
    std::vector<int32_t> tokens(request.stop().max_tokens(), 5);
    return AnswerWith(tokens, static_cast<uint32_t>(request.token_ids().ids_size()), absl::Milliseconds(20));
  }});
  const Json json = RunJson({"--server", server.address(), "-c", "3", "--requests", "12", "--prompt-tokens",
                             "40", "--output-tokens", "uniform:2:9", "--slo-ttft", "1h"});
  EXPECT_EQ(json["requests"]["succeeded"], 12);
  EXPECT_EQ(json["requests"]["failed"], 0);
  EXPECT_EQ(json["tokens"]["input"], 12 * 40);
  EXPECT_EQ(json["goodput"]["requests"], 12);
  EXPECT_GE(json["ttft"]["p50"], 0.02);
  EXPECT_EQ(json["settings"]["output-tokens"], "uniform:2:9");
  EXPECT_FALSE(json["machine"]["cpu"].get<std::string>().empty());
  EXPECT_EQ(server.max_open(), 3);
  for (const v1::GenerateRequest& request : server.generate_requests()) {
    EXPECT_TRUE(request.stop().ignore_eos());
    EXPECT_EQ(request.token_ids().ids_size(), 40);
    EXPECT_THAT(request.token_ids().ids(),
                ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(1000))));
  }
}

TEST(BenchTest, TheSameSeedAsksForTheSame) {
  std::vector<std::string> asked;
  std::vector<std::vector<std::vector<int32_t>>> prompts;
  for (const char* seed : {"7", "7", "8"}) {
    FakeInference server;
    const Json json = RunJson({"--server", server.address(), "-c", "1", "--requests", "6", "--seed", seed,
                               "--prompt-tokens", "normal:30:10", "--output-tokens", "3"});
    asked.push_back(json["asked"]);
    prompts.push_back(Prompts(server));
  }
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_EQ(prompts[0], prompts[1]);
  EXPECT_NE(asked[0], asked[2]);
  EXPECT_NE(prompts[0], prompts[2]);
}

TEST(BenchTest, AnOpenLoopDoesNotWaitForTheServer) {
  // Nobody gets an answer before all 20 have arrived, which a closed loop of any smaller size could never
  // achieve.
  absl::Mutex mutex;
  int arrived = 0;
  FakeInference server({.generate = [&](const v1::GenerateRequest&) {
    absl::MutexLock lock(&mutex);
    ++arrived;
    return AnswerWith({1, 2}, 4, absl::Milliseconds(1500));
  }});
  const Json json = RunJson({"--server", server.address(), "--rate", "100", "--requests", "20",
                             "--output-tokens", "2", "--arrivals", "fixed"});
  EXPECT_EQ(json["requests"]["succeeded"], 20);
  EXPECT_GT(server.max_open(), 10);
}

TEST(BenchTest, LaterTurnsRepeatWhatWasSaidAndSharedPrefixesAreShared) {
  FakeInference server({.generate = [](const v1::GenerateRequest& request) {
    return AnswerWith({901, 902, 903}, static_cast<uint32_t>(request.token_ids().ids_size()));
  }});
  RunJson({"--server", server.address(), "-c", "1", "--requests", "4", "--turns", "2", "--prompt-tokens",
           "10", "--output-tokens", "3", "--shared-prefix-tokens", "32"});
  const std::vector<std::vector<int32_t>> prompts = Prompts(server);
  ASSERT_EQ(prompts.size(), 4u);
  ASSERT_EQ(prompts[0].size(), 42u);
  ASSERT_EQ(prompts[1].size(), 42u + 3 + 10);
  std::vector<int32_t> said = prompts[0];
  said.insert(said.end(), {901, 902, 903});
  EXPECT_TRUE(std::equal(said.begin(), said.end(), prompts[1].begin()));
  EXPECT_TRUE(std::equal(prompts[0].begin(), prompts[0].begin() + 32, prompts[2].begin()))
      << "one prefix group";
  EXPECT_FALSE(std::equal(prompts[0].begin(), prompts[0].end(), prompts[2].begin())) << "other prompts";
}

TEST(BenchTest, WarmUpIsNotMeasuredAndHasOtherPrompts) {
  FakeInference server;
  const Json json =
      RunJson({"--server", server.address(), "-c", "2", "--requests", "3", "--warmup", "4", "--prompt-tokens",
               "16", "--output-tokens", "1", "--shared-prefix-tokens", "16"});
  EXPECT_EQ(json["requests"]["succeeded"], 3);
  const std::vector<std::vector<int32_t>> prompts = Prompts(server);
  ASSERT_EQ(prompts.size(), 7u);
  for (size_t warm = 0; warm < 4; ++warm) {
    for (size_t measured = 4; measured < 7; ++measured) {
      EXPECT_NE(prompts[warm], prompts[measured]);
      EXPECT_TRUE(std::equal(prompts[warm].begin(), prompts[warm].begin() + 16, prompts[measured].begin()));
    }
  }
}

// With the shipped model, in one process.
TEST(BenchTest, WhatProfileWritesPlanAndSimulateRead) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("baton_profile_{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string profile = folder / "profile.json", record = folder / "record.jsonl";
  const cli::Outcome bench =
      cli::RunBaton({"bench", "--model", BATON_SOURCE_DIR "/models/baton-tiny", "--requests", "40", "-c", "4",
                     "--prompt-tokens", "uniform:64:512", "--output-tokens", "8", "--profile", profile,
                     "--record", record});
  if (bench.code != 0) {  // on a busy machine times may tell nothing of tokens
    ASSERT_NE(bench.err.find("no profile: "), std::string::npos) << bench.err;
    std::filesystem::copy_file(BATON_SOURCE_DIR "/deploy/profiles/baton-tiny-cpu.json", profile);
  }
  const cli::Outcome plan =
      cli::RunBaton({"plan", "--profile", profile, "--rate", "1", "--prompt-tokens", "256", "--output-tokens",
                     "8", "--kv-memory", "64MiB", "--slo-ttft", "1h", "--slo-tpot", "1h"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  const std::string trace = folder / "trace.jsonl";
  std::ofstream(trace) << R"({"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [1, 2]})";
  const cli::Outcome simulate = cli::RunBaton({"simulate", "--trace", trace, "--fleet", profile, "--policies",
                                               "prefix_affinity", "--record", folder / "simulated.jsonl"});
  EXPECT_EQ(simulate.code, 0) << simulate.err;
  // One line for each request, with the same fields.
  const auto lines = [](const std::filesystem::path& path) {
    std::vector<Json> all;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    return all;
  };
  const auto measured = lines(record), simulated = lines(folder / "simulated.jsonl");
  ASSERT_EQ(measured.size(), 40u);
  ASSERT_EQ(simulated.size(), 1u);
  for (const auto& run : {measured[0], simulated[0]}) {
    EXPECT_NEAR(run["prefill_queue"].get<double>() + run["prefill"].get<double>() +
                    run["transfer"].get<double>() + run["rest"].get<double>(),
                run["ttft"].get<double>(), 1e-9);
  }
  for (const auto& field : measured[0].items())
    EXPECT_TRUE(simulated[0].contains(field.key())) << field.key();
  EXPECT_EQ(measured[0].size(), simulated[0].size());
  std::filesystem::remove_all(folder);
}

TEST(BenchTest, ARecordThatCantBeWrittenIsSaidBeforeTheLoad) {
  std::atomic<int> asked = 0;
  FakeInference server({.generate = [&](const v1::GenerateRequest&) {
    ++asked;
    return AnswerWith({1}, 1);
  }});
  const cli::Outcome bench = cli::RunBaton({"bench", "--server", server.address(), "--requests", "5",
                                            "--warmup", "0", "--record", "/no/such/folder/record.jsonl"});
  EXPECT_NE(bench.code, 0);
  EXPECT_NE(bench.err.find("/no/such/folder/record.jsonl"), std::string::npos) << bench.err;
  EXPECT_EQ(asked, 0);
}

TEST(BenchTest, FailuresAreCountedByCodeAndSpoilNothing) {
  std::atomic<int> count = 0;
  FakeInference server({.generate = [&](const v1::GenerateRequest&) -> Script {
    switch (count++ % 4) {
      case 0:
        return {{}, absl::ResourceExhaustedError("the queue is full")};
      case 1: {
        Script cut = AnswerWith({1, 2, 3}, 1);
        cut.steps.resize(2);
        return cut;  // ends well, without Finished
      }
      case 2:
        return AnswerWith({1}, 1);  // one token of three
      default:
        return AnswerWith({1, 2, 3}, 1);
    }
  }});
  const Json json =
      RunJson({"--server", server.address(), "-c", "1", "--requests", "8", "--output-tokens", "3"});
  EXPECT_EQ(json["requests"]["succeeded"], 2);
  EXPECT_EQ(json["requests"]["failed"], 6);
  EXPECT_EQ(json["errors"]["RESOURCE_EXHAUSTED"]["count"], 2);
  EXPECT_THAT(json["errors"]["RESOURCE_EXHAUSTED"]["first_message"].get<std::string>(),
              HasSubstr("the queue is full"));
  EXPECT_EQ(json["errors"]["INTERNAL"]["count"], 4);
  EXPECT_EQ(json["ttft"]["count"], 2);
}

TEST(BenchTest, NothingSucceededIsAFailure) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) {
    return Script{{}, absl::InternalError("broken")};
  }});
  const cli::Outcome outcome = cli::RunBaton({"bench", "--server", server.address(), "--requests", "2"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("2 x INTERNAL: broken"));
  EXPECT_THAT(outcome.err, HasSubstr("no request succeeded"));
}

TEST(BenchTest, RequestsBeyondTheContextAreNotSent) {
  FakeInference server({.context_tokens = 100});
  const Json json = RunJson({"--server", server.address(), "-c", "2", "--requests", "50", "--prompt-tokens",
                             "uniform:50:150", "--output-tokens", "1"});
  EXPECT_GT(json["requests"]["too_long"], 0);
  EXPECT_EQ(json["requests"]["too_long"].get<int>() + json["requests"]["succeeded"].get<int>(), 50);
  for (const std::vector<int32_t>& prompt : Prompts(server)) EXPECT_LE(prompt.size(), 99u);
}

TEST(BenchTest, ATraceIsReplayedWithItsPrefixes) {
  const std::string path = fmt::format("{}/trace-{}.jsonl", ::testing::TempDir(), getpid());
  {
    std::ofstream file(path);
    file << R"({"timestamp": 0, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]})" << '\n'
         << R"({"timestamp": 10, "input_length": 1536, "output_length": 8, "hash_ids": [0, 1, 2]})" << '\n'
         << R"({"timestamp": 20, "input_length": 512, "output_length": 0, "hash_ids": [9]})" << '\n';
  }
  FakeInference server({.context_tokens = 200});
  const Json json = RunJson({"--server", server.address(), "--trace", path, "--trace-scale-lengths", "fit"});
  EXPECT_EQ(json["requests"]["succeeded"], 3);
  std::vector<std::vector<int32_t>> prompts = Prompts(server);
  std::sort(prompts.begin(), prompts.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  ASSERT_EQ(prompts.size(), 3u);
  // 198 x 512 / 1544 = 65 tokens, 64 as whole KV blocks, stand for a block of 512.
  EXPECT_EQ(prompts[0].size(), 192u);
  EXPECT_EQ(prompts[1].size(), 125u);
  EXPECT_EQ(prompts[2].size(), 64u);
  EXPECT_TRUE(std::equal(prompts[1].begin(), prompts[1].end(), prompts[0].begin()));
  EXPECT_FALSE(std::equal(prompts[2].begin(), prompts[2].end(), prompts[0].begin()));
  std::filesystem::remove(path);
}

TEST(BenchTest, AHostileTraceIsRefusedByLine) {
  const std::string path = fmt::format("{}/bad-trace-{}.jsonl", ::testing::TempDir(), getpid());
  std::ofstream(path) << R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]})"
                      << "\n\n{\"timestamp\": 1, \"input_length\": -5}\n";
  FakeInference server;
  const cli::Outcome outcome = cli::RunBaton({"bench", "--server", server.address(), "--trace", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("line 3: input_length must be a whole number"));
  EXPECT_TRUE(server.generate_requests().empty());
  std::filesystem::remove(path);
}

TEST(BenchTest, MisuseIsTwo) {
  EXPECT_EQ(cli::RunBaton({"bench", "--rate", "1", "--concurrency", "1"}).code, 2);
  EXPECT_EQ(cli::RunBaton({"bench", "--rate", "-1"}).code, 2);
  EXPECT_EQ(cli::RunBaton({"bench", "--prompt-tokens", "zipf:1:2"}).code, 2);
  EXPECT_EQ(cli::RunBaton({"bench", "--trace-speed", "2"}).code, 2);
  EXPECT_EQ(cli::RunBaton({"bench", "--slo-ttft", "fast"}).code, 2);
}

TEST(BenchTest, CtrlCStillReports) {
  std::atomic<int> count = 0;
  FakeInference server({.generate = [&](const v1::GenerateRequest&) {
    return AnswerWith({1}, 1, count++ < 2 ? absl::ZeroDuration() : absl::InfiniteDuration());
  }});
  cli::BatonOnTerminal baton(
      {"bench", "--server", server.address(), "-c", "1", "--requests", "10", "--output-tokens", "1"});
  ASSERT_TRUE(baton.WaitFor("2/10")) << baton.seen();
  baton.Type("\x03");
  EXPECT_TRUE(baton.WaitFor("2 ok, 0 failed")) << baton.seen();
  EXPECT_EQ(baton.Wait(), 1);
  EXPECT_TRUE(server.WaitForCancelled(1));
}

// Two thousand streams that are all open at once, on one connection.
TEST(LoadClientTest, ThousandsOfStreamsAtOnce) {
  constexpr int kStreams = 2000;
  FakeInference server({.generate = [](const v1::GenerateRequest&) {
    return AnswerWith({1, 2, 3}, 1, absl::Seconds(2));
  }});
  SyntheticSettings settings;
  settings.seed = kSeed;
  settings.prompt = Distribution::Fixed(16);
  settings.output = Distribution::Fixed(3);
  const std::unique_ptr<Workload> workload = MakeSynthetic(settings);
  const MonotonicClock clock;
  LoadClient client(server.address(), 1, clock);
  Recorder recorder({});
  RunSettings run;
  run.context_tokens = 4096;
  run.vocabulary_tokens = 1000;
  run.concurrency = kStreams;
  run.requests = kStreams;
  RunLoad(run, *workload, client, clock, recorder, [](const RunState&) {});
  EXPECT_EQ(recorder.summary().succeeded, kStreams);
  for (const auto& [code, error] : recorder.summary().errors) {
    ADD_FAILURE() << error.count << " x " << code << ": " << error.first_message;
  }
  EXPECT_GT(server.max_open(), kStreams / 2);
  RecordProperty("max_open", server.max_open());
}

TEST(LoadClientTest, WhatIsLeftAfterTheDrainIsCutOffAndNotTheServersFault) {
  FakeInference server(
      {.generate = [](const v1::GenerateRequest&) { return AnswerWith({1}, 1, absl::InfiniteDuration()); }});
  const std::unique_ptr<Workload> workload = MakeSynthetic({});
  const MonotonicClock clock;
  LoadClient client(server.address(), 1, clock);
  Recorder recorder({});
  RunSettings run;
  run.context_tokens = 4096;
  run.vocabulary_tokens = 1000;
  run.concurrency = 2;
  run.requests = 2;
  run.drain = absl::Milliseconds(50);
  RunLoad(run, *workload, client, clock, recorder, [](const RunState&) {});
  EXPECT_EQ(recorder.summary().cut_off, 2);
  EXPECT_EQ(recorder.summary().failed, 0);
}

}  // namespace
}  // namespace baton::lab::bench
