// What grammars cost. BM_Mask: a mask for one row and taking its token, along answers under schemas of
// several kinds, with p50_us and p99_us. BM_Rows: steps of 16 running rows on the shipped model, so many of
// them under a grammar; its time per step against that of no such row is what they cost the batch. The
// context lines say which machine it is.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/engine/loop.h"
#include "common/output/call_grammar.h"
#include "common/output/constraint.h"
#include "common/telemetry/metrics.h"
#include "common/text/grammar.h"
#include "common/text/tokenizer.h"
#include "common/transfer/fingerprint_wire.h"
#include "common/transfer/host_link.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {
namespace {

constexpr const char* kModel = BATON_SOURCE_DIR "/models/baton-tiny";
constexpr int kRows = 16;

const std::shared_ptr<const text::Tokenizer>& Tokens() {
  static const auto* const tokenizer = new auto(text::Tokenizer::Load(kModel).value());
  return *tokenizer;
}

const std::shared_ptr<const text::GrammarVocabulary>& SharedVocabulary() {
  static const auto* const vocabulary = new auto(text::GrammarVocabulary::Make(*Tokens()).value());
  return *vocabulary;
}

const text::GrammarVocabulary& Vocabulary() { return *SharedVocabulary(); }

// More members than a run has tokens for, so that no row ends.
std::string LongObject() {
  std::string properties, required;
  for (int i = 0; i < 200; ++i) {
    properties +=
        fmt::format(R"({}"p{}": {{"type": "{}"}})", i == 0 ? "" : ",", i, i % 2 == 0 ? "string" : "integer");
    required += fmt::format(R"({}"p{}")", i == 0 ? "" : ",", i);
  }
  return fmt::format(
      R"({{"type": "object", "properties": {{{}}}, "required": [{}], "additionalProperties": false}})",
      properties, required);
}

std::vector<std::string> Grammars() {
  const std::string place =
      R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1,
          "maximum": 14}, "unit": {"enum": ["celsius", "fahrenheit"]}}, "required": ["city", "days"],
          "additionalProperties": false})";
  const output::MarkerTables tables(*Tokens());
  const std::vector<output::CallableTool> tools = {{"get_weather", output::ArgumentsGrammar(place).value()}};
  return {output::SchemaGrammar(place).value(),
          output::SchemaGrammar(LongObject()).value(),
          output::AnyObjectGrammar(),
          output::RegexGrammar("([A-Z][a-z]+ ){3,30}[0-9]{4}").value(),
          output::CallGrammar(*tables.Find("hermes"), tools, {}),
          output::CallGrammar(*tables.Find("hermes"), tools, {.required = true})};
}

void BM_Mask(benchmark::State& state) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  std::vector<text::GrammarMatcher> starts;
  for (const std::string& grammar : Grammars()) starts.push_back(Vocabulary().Compile(grammar).value());
  std::mt19937_64 random(1);
  std::vector<double> took;
  text::TokenMask mask(Vocabulary().mask_words());
  for (auto _ : state) {
    for (const text::GrammarMatcher& start : starts) {
      text::GrammarMatcher matcher = start.Fork();
      for (int step = 0; step < 100; ++step) {
        const auto begin = std::chrono::steady_clock::now();
        BATON_CHECK(matcher.Mask(mask).ok());
        took.push_back(Microseconds(std::chrono::steady_clock::now() - begin).count());
        std::vector<TokenId> allowed;
        for (int32_t id = 0; id < Tokens()->vocabulary(); ++id) {
          if (text::Allows(mask, TokenId(id))) allowed.emplace_back(id);
        }
        if (allowed.empty()) break;
        const auto pushing = std::chrono::steady_clock::now();
        BATON_CHECK(matcher.Push(allowed[random() % allowed.size()]).ok());
        took.back() += Microseconds(std::chrono::steady_clock::now() - pushing).count();
      }
    }
  }
  std::ranges::sort(took);
  state.counters["masks"] = static_cast<double>(took.size());
  state.counters["p50_us"] = took[took.size() / 2];
  state.counters["p99_us"] = took[took.size() * 99 / 100];
  state.counters["max_us"] = took.back();
}

// No prompt is handed off here.
class NoPrefill final : public PrefillClient {
 public:
  std::unique_ptr<PrefillCall> Call(const std::string&, v1::PrefillRequest, absl::Time,
                                    const telemetry::TraceContext&, Callbacks) override {
    BATON_CHECK(false) << " a hand-off";
    return nullptr;
  }
};

v1::DecodeRequest Request(const engine::Engine& engine, int row, bool constrained) {
  v1::DecodeRequest request;
  *request.mutable_fingerprint() = transfer::ToProto(engine.fingerprint());
  const std::string prompt = fmt::format("Story {}: once upon a time there was", row);
  const auto tokens = Tokens()->Encode(prompt, /*add_special_tokens=*/true).value();
  for (const TokenId token : tokens) request.add_token_ids(token.value());
  request.mutable_stop()->set_max_tokens(300);
  request.mutable_stop()->set_ignore_eos(!constrained);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(row));
  if (constrained) request.mutable_grammar()->set_lark(output::SchemaGrammar(LongObject()).value());
  return request;
}

void BM_Rows(benchmark::State& state) {
  auto engine = engine::Engine::Load({.model_folder = kModel, .threads = 1}).value();
  const auto markers = std::make_shared<output::MarkerTables>(*Tokens());
  transfer::HostLinkReceiver link;
  NoPrefill prefill;
  const MonotonicClock clock;
  telemetry::Metrics metrics;
  Probe probe(metrics, "host");
  engine::Loop masks(kRows);
  masks.Start([] { return false; });
  for (auto _ : state) {
    state.PauseTiming();
    auto scheduler = std::make_unique<Scheduler>(SchedulerOptions{}, *engine, link, prefill, clock, probe);
    for (int row = 0; row < kRows; ++row) {
      auto sequence =
          ParseRequest(Request(*engine, row, row < state.range(0)), *engine, Tokens(), markers).value();
      sequence->send = [](v1::DecodeEvent) {};
      sequence->finish = [](const absl::Status&) {};
      sequence->congested = [] { return false; };
      if (AnswerGrammar* const grammar = sequence->outbox->grammar(); grammar != nullptr) {
        grammar->Begin(SharedVocabulary(), Vocabulary().Compile(grammar->lark()).value(), masks);
      }
      BATON_CHECK(scheduler->Submit(SequenceId(static_cast<uint64_t>(row)), std::move(sequence)).ok());
    }
    while (scheduler->running() < kRows) scheduler->Step();
    state.ResumeTiming();
    for (int step = 0; step < 200; ++step) scheduler->Step();
    state.PauseTiming();
    BATON_CHECK(scheduler->running() == kRows) << " a row ended";
    scheduler->Abort(absl::CancelledError("measured"));
    scheduler.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * 200 * kRows);
}

BENCHMARK(BM_Mask)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Rows)->ArgName("constrained")->Arg(0)->Arg(16)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace baton::decode_service
