// The flags of `baton bench`, and what they mean: a workload, how to run it, which SLO to compare the answers
// with. Plain data, except that the trace is read.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/chat/request_flags.h"
#include "lab/bench/recorder.h"
#include "lab/bench/runner.h"
#include "lab/bench/workload.h"

namespace baton::lab::bench {

struct BenchFlags {
  cli::TargetFlags target;
  // Load
  std::optional<int> concurrency;
  std::optional<double> rate;
  std::string arrivals = "poisson";
  std::optional<int64_t> requests;
  std::string duration;
  int64_t max_in_flight = 100'000;
  int warmup = 0;
  std::string drain = "1m";
  int connections = 1;
  // Lengths of requests
  std::string prompt_tokens = "256";
  std::string output_tokens = "64";
  int64_t shared_prefix_tokens = 0;
  int prefix_groups = 1;
  int turns = 1;
  std::string think = "0";
  std::string trace;
  double trace_speed = 1;
  int64_t trace_limit = 0;
  std::string trace_scale_lengths;
  std::string trace_spread = "auto";
  uint64_t seed = 0;
  float temperature = 0;
  bool respect_eos = false;
  // Report
  std::string slo_ttft;
  std::string slo_tpot;
  std::string json;
  std::string profile;
  std::string record;

  void AddTo(CLI::App& app);
};

// The plan that the flags mean for the model that will serve them.
struct BenchPlan {
  std::unique_ptr<Workload> workload;
  // Other prompts with the same shared prefixes; null without --warmup.
  std::unique_ptr<Workload> warmup;
  RunSettings run;
  RunSettings warmup_run;
  RecorderOptions recorder;
  // Requests that the progress display expects; 0: unknown.
  int64_t expected_requests = 0;
  // Choices that the command made for the user, one line each.
  std::vector<std::string> notes;
};

// Needs no server. INVALID_ARGUMENT: misuse.
absl::Status CheckFlags(const BenchFlags& flags);

absl::StatusOr<BenchPlan> MakePlan(const BenchFlags& flags, const v1::ModelInfo& model);

}  // namespace baton::lab::bench
