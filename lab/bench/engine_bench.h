// EngineBench: how fast the engine computes by itself, in this process: no relay, no cache, no sampling.
// Chunks of prompts and steps of decode, of made-up tokens and KV, beside what this machine can do at most,
// measured in the same minutes. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace baton::lab::bench {

struct EngineBenchOptions {
  engine::EngineOptions engine;  // its KV pool is made as large as the runs need
  std::vector<int> prompts = {128, 512, 2048};
  std::vector<int> batches = {1, 4, 8, 16};
  std::vector<int> depths = {128, 1024};
  int chunk_tokens = 512;
  int repetitions = 5;
  // Called before each run with what it is; may be empty.
  std::function<void(const std::string& what)> progress;
};

// One run, repetition by repetition.
struct EngineRun {
  int64_t prompt = 0;            // tokens of a prompt; 0: decode
  int64_t batch = 0, depth = 0;  // of decode: sequences, and the tokens that each has already
  std::vector<double> seconds;   // of the prompt, or of a step
  // Shares of a limit measured right before: least possible time / `seconds`. Prefill: its products at the
  // rate of the product kernel, on GPUs of a large product; decode: its reads at the rate of the memory.
  std::vector<double> of_limit;

  int64_t tokens() const { return prompt > 0 ? prompt : batch; }
  double bytes = 0;  // that a step of decode reads: weights, and KV of all sequences
};

struct EngineBenchResult {
  std::string numerics;  // classes of the arithmetic, and so the instruction set where it matters
  std::string device;    // whose memory the kernels work in: "host memory", "memory of GPU 0"
  int threads = 0;
  double load_seconds = 0;
  int64_t weight_bytes = 0, kv_bytes = 0;
  // Multiply-adds of a token's products with weights, without the head.
  int64_t token_products = 0;
  std::vector<double> product_rate;  // operations per second, two for a multiply-add: the product kernel, on
                                     // the host in cache
  std::vector<double> read_rate;     // bytes per second
  std::vector<EngineRun> runs;       // prompts, then decode by depth and batch
};

// INVALID_ARGUMENT if a prompt or a depth is longer than the model's context; others as Engine::Load.
absl::StatusOr<EngineBenchResult> RunEngineBench(const EngineBenchOptions& options);

}  // namespace baton::lab::bench
