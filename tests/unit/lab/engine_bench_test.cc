#include "lab/bench/engine_bench.h"

#include <gtest/gtest.h>

#include "lab/bench/engine_report.h"

namespace baton::lab::bench {
namespace {

EngineBenchOptions Small() {
  EngineBenchOptions options;
  options.engine.model_folder = "models/baton-tiny";
  options.engine.threads = 1;
  options.prompts = {20, 40};
  options.batches = {1, 3};
  options.depths = {33};
  options.chunk_tokens = 16;
  options.repetitions = 3;
  return options;
}

TEST(EngineBenchTest, MeasuresEachPromptAndEachStepAsOftenAsAskedFor) {
  const absl::StatusOr<EngineBenchResult> result = RunEngineBench(Small());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->runs.size(), 4U);
  EXPECT_EQ(result->runs[0].prompt, 20);
  EXPECT_EQ(result->runs[1].prompt, 40);
  EXPECT_EQ(result->runs[3].batch, 3);
  EXPECT_EQ(result->runs[3].depth, 33);
  EXPECT_GT(result->runs[3].bytes, result->runs[2].bytes) << "KV of more sequences";
  for (const EngineRun& run : result->runs) {
    EXPECT_EQ(run.seconds.size(), 3U);
    EXPECT_EQ(run.of_limit.size(), 3U);
    for (const double seconds : run.seconds) EXPECT_GT(seconds, 0);
    for (const double share : run.of_limit) EXPECT_GT(share, 0);
  }
  EXPECT_GT(result->weight_bytes, 0);
  EXPECT_GT(result->token_products, 0);
  EXPECT_EQ(result->threads, 1);
}

// As workers do: another backend, several ranks, KV of less precision.
TEST(EngineBenchTest, ComputesAsWorkersDo) {
  EngineBenchOptions options = Small();
  options.prompts = {20};
  options.repetitions = 1;
  options.engine.backend = "reference";
  options.engine.tp = 2;
  const absl::StatusOr<EngineBenchResult> two = RunEngineBench(options);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->numerics, "reference/1+tp2");
  EXPECT_EQ(two->device, "host memory");

  options = Small();
  options.engine.key_dtype = tensor::DType::kI8;
  options.engine.value_dtype = tensor::DType::kI4;
  const absl::StatusOr<EngineBenchResult> small = RunEngineBench(options);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_LT(small->kv_bytes, RunEngineBench(Small())->kv_bytes / 2);

  options.engine.backend = "cuda";
  if (const auto none = RunEngineBench(options); !none.ok()) {
    EXPECT_TRUE(absl::IsFailedPrecondition(none.status()) || absl::IsUnavailable(none.status()))
        << none.status();
  }
}

TEST(EngineBenchTest, RefusesWhatTheModelHasNoContextFor) {
  EngineBenchOptions options = Small();
  options.depths = {1 << 20};
  EXPECT_EQ(RunEngineBench(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EngineReportTest, ShowsMediansAndRanges) {
  EXPECT_EQ(MedianOf({}), 0);
  EXPECT_EQ(MedianOf({3, 1, 2}), 2);
  EXPECT_EQ(MedianOf({4, 1}), 2.5);
  EngineBenchResult result;
  result.device = "memory of GPU 0";
  result.threads = 2;
  result.product_rate = {1e9};
  result.read_rate = {2e9};
  result.runs.push_back({.prompt = 100, .seconds = {1, 4, 2}, .of_limit = {0.5, 0.2, 0.3}});
  result.runs.push_back(
      {.batch = 4, .depth = 10, .seconds = {0.1, 0.1, 0.1}, .of_limit = {0.9, 0.9, 0.9}, .bytes = 1e8});
  const std::string text = RenderEngineReport(result, "int8", {});
  EXPECT_NE(text.find("50.0 (25.0 to 100.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("1.0 GB/s  90%"), std::string::npos) << text;
  EXPECT_NE(text.find("1 Gop/s of a large product"), std::string::npos) << text;
  EXPECT_NE(text.find("memory of GPU 0 2.0 GB/s copied"), std::string::npos) << text;
  const nlohmann::ordered_json json = EngineReportToJson(result, "int8", {});
  EXPECT_EQ(json["prefill"][0]["tokens_per_second"], 50.0);
  EXPECT_EQ(json["decode"][0]["tokens_per_second"], 40.0);
  EXPECT_EQ(json["limits"]["read_bytes_per_second"], 2e9);
}

}  // namespace
}  // namespace baton::lab::bench
