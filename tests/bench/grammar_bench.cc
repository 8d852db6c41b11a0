// Costs of grammars. BM_Mask: a mask for one row and taking its token, along answers under schemas of several
// kinds, with p50_us and p99_us. BM_Rows: 16 running rows on the shipped model, in alternating rounds of
// steps without and with grammars: all rows under one (`constrained`), or some of them under one whose masks
// are dear (`hostile`). BM_Parsing: likewise, and all rows of one round are parsed into parts. In both,
// `loss_percent` is what the plain round's time a token has grown by (with `hostile`, a step), the median of
// the rounds, and `rows_a_step` how many rows had a token. BM_Refusal: the CPU time in which a hostile
// grammar is refused, or compiled. The context lines say which machine it is.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "engine/engine.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "text/grammar.h"
#include "text/output/call_grammar.h"
#include "text/output/constraint.h"
#include "text/tokenizer.h"
#include "transfer/host_link.h"

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
  const std::vector<output::CallableTool> tools = {
      {"get_weather", output::ArgumentsGrammar(*tables.Find("hermes"), place, 0).value()}};
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
  std::unique_ptr<PrefillCall> Call(const std::string&, fleet::v1::PrefillRequest, absl::Time,
                                    const telemetry::TraceContext&, Callbacks) override {
    BATON_CHECK(false) << " a hand-off";
    return nullptr;
  }
};

enum class Kind { kPlain, kConstrained, kHostile, kParsed };

// A grammar that compiles and whose masks are dear.
constexpr char kDear[] = "start: /([a-z ]*[aeiou][a-z ]{40,60}[aeiou]){1,40}[a-z ]*/";

fleet::v1::DecodeRequest Request(const engine::Engine& engine, int row, Kind kind) {
  fleet::v1::DecodeRequest request;
  *request.mutable_fingerprint() = protocol::ToProto(engine.fingerprint());
  const std::string prompt = fmt::format("Story {}: once upon a time there was", row);
  const auto tokens = Tokens()->Encode(prompt, /*add_special_tokens=*/true).value();
  for (const TokenId token : tokens) request.add_token_ids(token.value());
  request.mutable_stop()->set_max_tokens(2000);
  request.mutable_stop()->set_ignore_eos(kind == Kind::kPlain || kind == Kind::kParsed);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(row));
  if (kind == Kind::kConstrained)
    request.mutable_grammar()->set_lark(output::SchemaGrammar(LongObject()).value());
  if (kind == Kind::kHostile) request.mutable_grammar()->set_lark(kDear);
  if (kind == Kind::kParsed) {
    request.mutable_answer_format()->set_name("hermes");
    request.mutable_answer_format()->add_tools("get_weather");
  }
  return request;
}

// 16 rows that run, `odd` of them of another kind.
class Batch {
 public:
  Batch(engine::Engine& engine, int odd, Kind kind) : engine_(engine) {
    for (int row = 0; row < kRows; ++row) Submit(row, row < odd ? kind : Kind::kPlain);
    while (scheduler_.running() < kRows) scheduler_.Step();
  }
  ~Batch() { scheduler_.Abort(absl::CancelledError("measured")); }

  // Seconds of a step, or of a token of any row, over so many steps.
  double Run(int steps, bool by_token) {
    const int64_t tokens = tokens_;
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) scheduler_.Step();
    steps_ += steps;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return took.count() / static_cast<double>(by_token ? tokens_ - tokens : steps);
  }
  bool whole() const { return scheduler_.running() == kRows; }
  double rows_a_step() const { return static_cast<double>(tokens_) / static_cast<double>(steps_); }

 private:
  void Submit(int row, Kind kind) {
    auto sequence = ParseRequest(Request(engine_, row, kind), engine_, Tokens(), markers_).value();
    sequence->send = [this](const fleet::v1::DecodeEvent& event) { tokens_ += event.delta().tokens(); };
    sequence->finish = [](const absl::Status&) {};
    sequence->congested = [] { return false; };
    if (AnswerGrammar* const grammar = sequence->grammar.get(); grammar != nullptr) {
      grammar->Begin(SharedVocabulary(), Vocabulary().Compile(grammar->lark()).value(), masks_);
    }
    BATON_CHECK(scheduler_.Submit(SequenceId(static_cast<uint64_t>(row)), std::move(sequence)).ok());
  }

  engine::Engine& engine_;
  const std::shared_ptr<output::MarkerTables> markers_ = std::make_shared<output::MarkerTables>(*Tokens());
  transfer::HostLinkReceiver link_;
  NoPrefill prefill_;
  const MonotonicClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{metrics_, "host"};
  GrammarThreads masks_{{}};
  int64_t tokens_ = 0, steps_ = 0;
  Scheduler scheduler_{{}, engine_, link_, prefill_, clock_, probe_};
};

// Rounds of steps of plain rows, and of rows `odd` of which are of another kind.
void CompareRows(benchmark::State& state, int odd, Kind kind) {
  constexpr int kRound = 20;
  auto engine = engine::Engine::Load({.model_folder = kModel, .threads = 1}).value();
  std::vector<double> losses;
  double rows = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto plain = std::make_unique<Batch>(*engine, 0, Kind::kPlain);
    auto mixed = std::make_unique<Batch>(*engine, odd, kind);
    state.ResumeTiming();
    for (int round = 0; round < 10; ++round) {
      // For dear masks, the time of the others' steps counts.
      const bool by_token = kind != Kind::kHostile;
      const double without = plain->Run(kRound, by_token), with = mixed->Run(kRound, by_token);
      losses.push_back(100 * (with / without - 1));
    }
    state.PauseTiming();
    BATON_CHECK(plain->whole()) << " a row ended";
    rows = mixed->rows_a_step();
    state.ResumeTiming();
  }
  std::ranges::sort(losses);
  state.counters["loss_percent"] = losses[losses.size() / 2];
  state.counters["rows_a_step"] = rows;
}

void BM_Rows(benchmark::State& state) {
  CompareRows(state, static_cast<int>(state.range(0)),
              state.range(1) == 0 ? Kind::kConstrained : Kind::kHostile);
}

void BM_Parsing(benchmark::State& state) {
  CompareRows(state, static_cast<int>(state.range(0)), Kind::kParsed);
}

double ProcessCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string Repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Grammars that grow exponentially, nest, repeat or are large. Compiling has a thread of its own, and no
// other runs: the process's time is its time.
void BM_Refusal(benchmark::State& state) {
  const std::vector<std::pair<std::string, std::string>> hostile = {
      {"exponential", "start: /(a|b)*a(a|b){60}/"},
      {"powers", "start: /((((a{1,100}){1,100}){1,100}){1,100})/"},
      {"nested", "start: " + Repeated("(", 250) + "\"a\"" + Repeated(")", 250)},
      {"nested_deep", "start: " + Repeated("(", 20'000) + "\"a\"" + Repeated(")", 20'000)},
      {"optional", "start: /" + Repeated("a?", 2000) + "/"},
      {"megabyte", "start: \"" + std::string(1 << 20, 'a') + "\""},
  };
  const auto& [name, grammar] = hostile[static_cast<size_t>(state.range(0))];
  double longest = 0;
  bool refused = false;
  for (auto _ : state) {
    const double begin = ProcessCpuSeconds();
    refused = !Vocabulary().Compile(grammar).ok();
    longest = std::max(longest, ProcessCpuSeconds() - begin);
  }
  state.SetLabel(fmt::format("{}: {}", name, refused ? "refused" : "compiled"));
  state.counters["longest_cpu_ms"] = longest * 1e3;
}

BENCHMARK(BM_Mask)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Refusal)->ArgName("which")->DenseRange(0, 5)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_Rows)
    ->ArgNames({"rows", "hostile"})
    ->Args({0, 0})  // what the rounds differ by without a cause
    ->Args({16, 0})
    ->Args({4, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

BENCHMARK(BM_Parsing)
    ->ArgName("rows")
    ->Arg(0)  // what the rounds differ by without a cause
    ->Arg(16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace baton::decode_service
