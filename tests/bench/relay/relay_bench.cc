// The engine's performance beside this machine's, and the relay's costs over the engine alone: all of it in
// one run, medians, with the machine and the commit.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>

#include "cli/client/inference_client.h"
#include "cli/relay_in_process.h"
#include "common/base/build_info.h"
#include "common/base/check.h"
#include "engine/device/thread_pool.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "engine/sequence_kv.h"
#include "lab/bench/machine_limits.h"
#include "tests/bench/relay/synthetic_model.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

using lab::bench::ReadAll;
using lab::bench::ReadBuffer;
using lab::bench::RunMultiplyAdds;

using Clock = std::chrono::steady_clock;

double Seconds(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

// The machine's limits: the best of several measurements, since whatever disturbs one makes it smaller.
class Limits {
 public:
  explicit Limits(int threads) : pool_(threads), buffer_(int64_t{64} << 20) {
    for (int i = 0; i < 9; ++i) {
      double work = 0;
      const double multiplying =
          Seconds([&] { work = static_cast<double>(RunMultiplyAdds(pool_, 10'000'000)); });
      flops_ = std::max(flops_, work / multiplying);
      const double reading = Seconds([&] { work = static_cast<double>(ReadAll(pool_, buffer_.data())); });
      bytes_ = std::max(bytes_, work / reading);
    }
  }
  // Per second.
  double flops() const { return flops_; }
  double bytes() const { return bytes_; }

 private:
  device::ThreadPool pool_;
  ReadBuffer buffer_;
  double flops_ = 0;
  double bytes_ = 0;
};

std::vector<TokenId> Prompt(std::mt19937& random, int64_t size, int64_t vocabulary) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < size; ++i) tokens.emplace_back(static_cast<int32_t>(random() % vocabulary));
  return tokens;
}

// Prefill and decode of `batch` sequences at once, straight on the engine.
void EngineRows(engine::Engine& engine, const Limits& limits, int64_t prompt_tokens, int repetitions) {
  const model::ModelConfig& config = engine.config();
  // Multiply-adds of a token's projections, twice; the LM head counts where logits are made.
  const double layer_flops =
      2.0 * static_cast<double>(config.parameters() -
                                (config.tied_embeddings ? 1 : 2) * config.vocabulary * config.hidden);
  const double head_flops = 2.0 * static_cast<double>(config.vocabulary * config.hidden);
  std::printf("\n%-8s %16s %12s %16s %12s\n", "batch", "prefill tok/s", "of FLOPs", "decode tok/s",
              "of bandwidth");
  std::mt19937 random(3);
  for (int64_t batch : {1, 4, 8, 16}) {
    std::vector<double> prefill, prefill_share, decode, decode_share;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      std::vector<std::vector<TokenId>> prompts;
      std::vector<std::unique_ptr<engine::SequenceKv>> kv;
      engine::Batch rows;
      constexpr int64_t kSteps = 16;
      for (int64_t i = 0; i < batch; ++i) {
        prompts.push_back(Prompt(random, prompt_tokens, config.vocabulary));
        kv.push_back(std::make_unique<engine::SequenceKv>(engine.pool(), kv::BlockHash()));
        BATON_CHECK(kv.back()->Reserve(prompts.back(), prompt_tokens + kSteps).ok());
        rows.Add({.tokens = prompts.back(), .blocks = kv.back()->blocks(), .logit_rows = 1});
      }
      const double seconds = Seconds([&] { engine.Forward(rows, [](int) {}); });
      const auto tokens = static_cast<double>(batch * prompt_tokens);
      prefill.push_back(tokens / seconds);
      prefill_share.push_back((tokens * layer_flops + static_cast<double>(batch) * head_flops) / seconds /
                              limits.flops());
      const double step = Seconds([&] {
                            for (int64_t s = 0; s < kSteps; ++s) {
                              rows.Clear();
                              for (int64_t i = 0; i < batch; ++i) {
                                rows.Add({.tokens = std::span(prompts[i]).first(1),
                                          .first_position = prompt_tokens + s,
                                          .blocks = kv[i]->blocks(),
                                          .logit_rows = 1});
                              }
                              engine.Forward(rows, [](int) {});
                            }
                          }) /
                          kSteps;
      const double bytes =
          static_cast<double>(engine.weight_bytes()) +
          static_cast<double>(batch * prompt_tokens * engine.store().layout().block_bytes() / kBlockTokens);
      decode.push_back(static_cast<double>(batch) / step);
      decode_share.push_back(bytes / step / limits.bytes());
    }
    std::printf("%-8lld %16.0f %11.0f%% %16.0f %11.0f%%\n", static_cast<long long>(batch), Median(prefill),
                100 * Median(prefill_share), Median(decode), 100 * Median(decode_share));
  }
}

struct Pace {
  std::vector<double> ttft, tpot;
};

// One prompt on the engine alone: TTFT and TPOT.
void Alone(engine::Engine& engine, const std::vector<TokenId>& prompt, int64_t tokens, Pace& pace) {
  sampling::Sampler sampler;
  sampling::History history;
  std::vector<TokenId> sequence = prompt;
  engine::SequenceKv kv(engine.pool(), kv::BlockHash());
  BATON_CHECK(kv.Reserve(sequence, static_cast<int64_t>(prompt.size()) + tokens).ok());
  engine::Batch batch;
  const auto next = [&](int64_t first) {
    batch.Clear();
    batch.Add({.tokens = std::span(sequence).subspan(first),
               .first_position = first,
               .blocks = kv.blocks(),
               .logit_rows = 1});
    const std::span<const float> logits = engine.Forward(batch, [](int) {}).logits(0);
    sequence.push_back(
        sampler.Sample(logits, {.temperature = 0}, history, sequence.size(), std::nullopt)->token);
  };
  pace.ttft.push_back(Seconds([&] { next(0); }));
  pace.tpot.push_back(Seconds([&] {
                        for (int64_t i = 1; i < tokens; ++i) next(static_cast<int64_t>(sequence.size()) - 1);
                      }) /
                      static_cast<double>(tokens - 1));
}

void Relay(cli::InferenceClient& client, const std::vector<TokenId>& prompt, int64_t tokens, Pace& pace,
           double& transfer) {
  v1::GenerateRequest request;
  for (TokenId token : prompt) request.mutable_token_ids()->add_ids(token.value());
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(tokens));
  request.mutable_stop()->set_ignore_eos(true);
  const auto begin = Clock::now();
  Clock::time_point first{}, last{};
  BATON_CHECK(client
                  .Generate(request, {},
                            [&](const v1::GenerateResponse& response) {
                              if (response.has_finished())
                                transfer = response.finished().timing().transfer_seconds();
                              if (!response.has_delta()) return absl::OkStatus();
                              last = Clock::now();
                              if (first == Clock::time_point{}) first = last;
                              return absl::OkStatus();
                            })
                  .ok());
  pace.ttft.push_back(std::chrono::duration<double>(first - begin).count());
  pace.tpot.push_back(std::chrono::duration<double>(last - first).count() / static_cast<double>(tokens - 1));
}

void RelayRows(const std::string& folder, int threads, int repetitions) {
  auto engine = engine::Engine::Load({.model_folder = folder, .threads = threads}).value();
  const auto relay = cli::StartRelayInProcess({.model_folder = folder, .threads = threads});
  BATON_CHECK(relay.ok()) << relay.status().ToString();
  const auto client = cli::InferenceClient::Connect(relay->address, absl::Seconds(30));
  BATON_CHECK(client.ok()) << client.status().ToString();
  std::mt19937 random(5);
  std::printf("\n%-8s %14s %14s %14s %14s %14s %14s\n", "prompt", "TTFT alone", "TTFT relay", "more",
              "TPOT alone", "TPOT relay", "more");
  for (int64_t size : {64, 256, 1024, 2048}) {
    Pace alone, relayed;
    std::vector<double> transfers;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      const std::vector<TokenId> prompt = Prompt(random, size, engine->config().vocabulary);
      double transfer = 0;
      Alone(*engine, prompt, 32, alone);
      Relay(**client, prompt, 32, relayed, transfer);
      transfers.push_back(transfer);
    }
    const double milli = 1e3;
    std::printf("%-8lld %11.2f ms %11.2f ms %11.2f ms %11.3f ms %11.3f ms %11.3f ms\n",
                static_cast<long long>(size), milli * Median(alone.ttft), milli * Median(relayed.ttft),
                milli * (Median(relayed.ttft) - Median(alone.ttft)), milli * Median(alone.tpot),
                milli * Median(relayed.tpot), milli * (Median(relayed.tpot) - Median(alone.tpot)));
  }
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  using namespace baton;
  int threads = 0, repetitions = 7;
  CLI::App app("The engine beside this machine's limits, and the relay beside the engine alone");
  app.add_option("--threads", threads, "threads per engine; all cores by default");
  app.add_option("--repetitions", repetitions, "of which the medians are shown")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (threads == 0) threads = device::UsableCores();
  const BuildInfo build = GetBuildInfo();
  std::printf("%s, %d thread(s), %s, %s, commit %s\n", bench::CpuModel().c_str(), threads, build.compiler,
              build.build_type, build.commit);
  const bench::Limits limits(threads);
  std::printf("limits: %.0f GFLOP/s float32, %.1f GB/s read from memory\n", limits.flops() * 1e-9,
              limits.bytes() * 1e-9);
  {
    const bench::SyntheticModel model;
    for (const auto weights : {model::WeightPrecision::kStored, model::WeightPrecision::kInt8}) {
      auto engine = engine::Engine::Load({.model_folder = model.folder(),
                                          .threads = threads,
                                          .kv_bytes = int64_t{1} << 30,
                                          .weights = weights});
      BATON_CHECK(engine.ok()) << engine.status().ToString();
      std::printf("\n%s, weights %s, %.0f MB, random; prompts of 256 tokens",
                  (*engine)->fingerprint().model.c_str(), std::string(model::Name(weights)).c_str(),
                  1e-6 * static_cast<double>((*engine)->weight_bytes()));
      bench::EngineRows(**engine, limits, 256, repetitions);
    }
  }
  const std::string shipped = BATON_SOURCE_DIR "/models/baton-tiny";
  {
    auto engine = engine::Engine::Load({.model_folder = shipped, .threads = threads}).value();
    std::printf("\nmodels/baton-tiny, whose weights stay in the caches; prompts of 256 tokens");
    bench::EngineRows(*engine, limits, 256, repetitions);
  }
  std::printf(
      "\nmodels/baton-tiny through router, prefill and decode, one request at a time, 32 tokens each");
  bench::RelayRows(shipped, threads, repetitions);
  return 0;
}
