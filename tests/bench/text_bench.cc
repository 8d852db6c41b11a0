// Costs of text: Encode of about 100,000 tokens (also from several threads on one tokenizer), Detokenizer,
// StopMatcher and a chat template. It uses the shipped model's tokenizer, a byte-level BPE of a few thousand
// tokens, or without it the tiny one of tests/golden/text.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

constexpr const char* kGolden = BATON_SOURCE_DIR "/tests/golden/text/";

// Prose, numbers and a little code in which few sentences repeat, so that a word cache helps as much as it
// does in life.
std::string Prose(size_t bytes) {
  constexpr std::string_view kWords[] = {
      "the",    "relay",  "passes",  "a",     "baton",    "to",    "next",   "runner", "before",
      "night",  "falls",  "over",    "city",  "größer",   "naïve", "日本語", "и",      "быстро",
      "return", "tokens", "measure", "water", "mountain", "quiet", "letter", "seven",  "blue"};
  std::string out;
  uint64_t state = 1;
  while (out.size() < bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t draw = state >> 33;
    out += kWords[draw % std::size(kWords)];
    if (draw % 7 == 0) out += std::to_string(draw % 10007);
    if (draw % 5 == 0) out += static_cast<char>('a' + draw % 26);
    out += draw % 11 == 0 ? ".\n" : draw % 13 == 0 ? ", " : " ";
  }
  return out;
}

struct Corpus {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string text;
  std::vector<TokenId> tokens;  // of text, about 100,000
};

const Corpus& TheCorpus() {
  static const Corpus* const corpus = [] {
    std::string folder = BATON_SOURCE_DIR "/models/baton-tiny";
    if (!std::filesystem::exists(folder)) folder = std::string(kGolden) + "tokenizers/llama3_like";
    auto tokenizer = Tokenizer::Load(folder);
    BATON_CHECK(tokenizer.ok()) << tokenizer.status();
    auto made = new Corpus{*tokenizer, Prose(1'000'000), {}};
    made->tokens = *made->tokenizer->Encode(made->text, /*add_special_tokens=*/false);
    made->text.resize(made->text.rfind(' ', made->text.size() * 100'000 / made->tokens.size()));
    made->tokens = *made->tokenizer->Encode(made->text, /*add_special_tokens=*/false);
    benchmark::AddCustomContext("tokenizer", folder);
    return made;
  }();
  return *corpus;
}

// About `size` bytes of `text` from `at` on, cut at spaces.
std::string Piece(const std::string& text, size_t at, size_t size) {
  const size_t begin = at == 0 ? 0 : text.find(' ', at);
  return text.substr(begin, text.find(' ', begin + size) - begin);
}

void BM_Encode(benchmark::State& state) {
  const Corpus& corpus = TheCorpus();
  for (auto _ : state)
    benchmark::DoNotOptimize(corpus.tokenizer->Encode(corpus.text, /*add_special_tokens=*/true));
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * corpus.tokens.size()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Encode)->Unit(benchmark::kMillisecond)->UseRealTime()->Threads(1)->Threads(2)->Threads(4);

// A prompt of 200 bytes.
void BM_EncodeShort(benchmark::State& state) {
  const Corpus& corpus = TheCorpus();
  const std::string prompt = Piece(corpus.text, 0, 200);
  for (auto _ : state)
    benchmark::DoNotOptimize(corpus.tokenizer->Encode(prompt, /*add_special_tokens=*/true));
}
BENCHMARK(BM_EncodeShort)->Unit(benchmark::kMicrosecond);

void BM_Detokenize(benchmark::State& state) {
  const Corpus& corpus = TheCorpus();
  for (auto _ : state) {
    Detokenizer detokenizer(corpus.tokenizer, /*keep_special=*/false);
    for (const TokenId token : corpus.tokens) benchmark::DoNotOptimize(detokenizer.Push(token));
    benchmark::DoNotOptimize(detokenizer.Flush());
  }
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * corpus.tokens.size()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Detokenize)->Unit(benchmark::kMillisecond);

void BM_StopMatcher(benchmark::State& state) {
  const Corpus& corpus = TheCorpus();
  std::vector<std::string> stops = {"\n\nUser:", "</answer>", "<|end|>", "never there"};
  for (auto _ : state) {
    StopMatcher matcher(stops);
    for (size_t at = 0; at < corpus.text.size(); at += 4) {
      benchmark::DoNotOptimize(matcher.Push(std::string_view(corpus.text).substr(at, 4)));
    }
  }
  state.counters["bytes/s"] = benchmark::Counter(static_cast<double>(state.iterations() * corpus.text.size()),
                                                 benchmark::Counter::kIsRate);
}
BENCHMARK(BM_StopMatcher)->Unit(benchmark::kMillisecond);

// range: messages of 200 bytes.
void BM_RenderChat(benchmark::State& state) {
  const Corpus& corpus = TheCorpus();
  std::ifstream file(std::string(kGolden) + "templates/qwen_style.jinja");
  std::stringstream source;
  source << file.rdbuf();
  const auto chat_template = ChatTemplate::FromSource(source.str(), ChatTemplate::Json::object());
  ChatTemplate::Json variables = {{"messages", ChatTemplate::Json::array()}, {"add_generation_prompt", true}};
  for (int64_t i = 0; i < state.range(0); ++i) {
    variables["messages"].push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", Piece(corpus.text, i * 97 % 50'000, 200)}});
  }
  for (auto _ : state) benchmark::DoNotOptimize((*chat_template)->Render(variables));
}
BENCHMARK(BM_RenderChat)->Unit(benchmark::kMicrosecond)->Arg(1)->Arg(10)->Arg(100)->Arg(1000);

}  // namespace
}  // namespace baton::text
