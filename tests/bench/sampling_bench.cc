// One draw from a vocabulary of 128,256 tokens.
#include <benchmark/benchmark.h>

#include <random>

#include "common/base/check.h"
#include "engine/sampling/sampler.h"

namespace baton::sampling {
namespace {

constexpr size_t kVocabulary = 128'256;

void Run(benchmark::State& state, const Params& params, std::optional<int> logprobs = std::nullopt,
         float spread = 3) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = normal(random);
  History history;
  for (int i = 0; i < 2000; ++i) history.AddOutput(TokenId(static_cast<int32_t>(random() % kVocabulary)));
  Sampler sampler;
  uint64_t position = 0;
  for (auto _ : state) {
    const auto draw = sampler.Sample(logits, params, history, position++, logprobs);
    BATON_CHECK(draw.ok()) << draw.status();
    benchmark::DoNotOptimize(draw->token);
  }
}

void BM_Greedy(benchmark::State& state) { Run(state, {.temperature = 0}); }
void BM_Temperature(benchmark::State& state) { Run(state, {}); }
// Nearly uniform: the draw may fall anywhere in the order.
void BM_TemperatureFlat(benchmark::State& state) { Run(state, {}, std::nullopt, 0.1f); }
void BM_TopK50(benchmark::State& state) { Run(state, {.top_k = 50}); }
void BM_TopP95(benchmark::State& state) { Run(state, {.top_p = 0.95f}); }
void BM_TopP95Flat(benchmark::State& state) { Run(state, {.top_p = 0.95f}, std::nullopt, 0.1f); }
void BM_MinP(benchmark::State& state) { Run(state, {.min_p = 0.05f}); }
void BM_TopK20TopP95(benchmark::State& state) {
  Run(state, {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f});
}
void BM_Penalties(benchmark::State& state) {
  Run(state, {.temperature = 0, .repetition_penalty = 1.1f, .presence_penalty = 0.5f});
}
void BM_GreedyTop20Logprobs(benchmark::State& state) { Run(state, {.temperature = 0}, 20); }

BENCHMARK(BM_Greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Temperature)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TemperatureFlat)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopK50)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopP95)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopP95Flat)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_MinP)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopK20TopP95)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Penalties)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_GreedyTop20Logprobs)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton::sampling
