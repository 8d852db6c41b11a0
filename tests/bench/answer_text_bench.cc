// Costs of a token on its way out of a decode worker: as text, and as typed parts. The difference, divided by
// the time per output token, is what parsing adds to TPOT.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "decode_service/answer_text.h"

namespace baton::decode_service {
namespace {

struct Model {
  std::shared_ptr<const text::Tokenizer> tokenizer =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  std::shared_ptr<const output::MarkerTables> markers = std::make_shared<output::MarkerTables>(*tokenizer);
};

const Model& TheModel() {
  static const auto* model = new Model();
  return *model;
}

// Some thousand tokens: thinking, text, and calls with long arguments.
std::vector<TokenId> Answer() {
  std::string text = "<think>\n";
  for (int i = 0; i < 200; ++i) text += "First the one place, then the other, and so on. ";
  text += "\n</think>\n\n";
  for (int i = 0; i < 200; ++i) text += "Here is what I found about the weather in Paris. ";
  for (int i = 0; i < 20; ++i) {
    text += "\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"text\": \"";
    for (int j = 0; j < 20; ++j) text += "one line of a longer text, ";
    text += "\"}}\n</tool_call>";
  }
  const auto tokens = TheModel().tokenizer->Encode(text, false);
  BATON_CHECK(tokens.ok()) << tokens.status();
  return *tokens;
}

void PushAll(benchmark::State& state, const std::string& format) {
  const std::vector<TokenId> tokens = Answer();
  v1::StopConditions stop;
  stop.set_max_tokens(1'000'000);
  stop.add_stop("this does not come");
  fleet::v1::AnswerFormat asked;
  asked.set_name(format);
  asked.add_tools("get_weather");
  asked.set_thinking_budget(1'000'000);
  for (auto _ : state) {
    std::optional<AnswerParts::Options> parts;
    if (!format.empty()) parts = AnswerParts::ReadOptions(asked, TheModel().markers, 1).value();
    AnswerText answer(TheModel().tokenizer, stop, {}, 0, {}, std::move(parts));
    for (const TokenId token : tokens) {
      v1::Delta delta;
      benchmark::DoNotOptimize(answer.Push({.token = token}, 0, delta));
      benchmark::DoNotOptimize(delta.ByteSizeLong());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(tokens.size()));
}

void BM_Text(benchmark::State& state) { PushAll(state, ""); }
void BM_Parts(benchmark::State& state) { PushAll(state, "hermes"); }
// Markers that the tokenizer spells.
void BM_PartsOfSpelledMarkers(benchmark::State& state) { PushAll(state, "kimi_k2"); }
// Which a decode worker makes once.
void BM_MarkerTables(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(output::MarkerTables(*TheModel().tokenizer));
}

BENCHMARK(BM_Text);
BENCHMARK(BM_Parts);
BENCHMARK(BM_PartsOfSpelledMarkers);
BENCHMARK(BM_MarkerTables);

}  // namespace
}  // namespace baton::decode_service
