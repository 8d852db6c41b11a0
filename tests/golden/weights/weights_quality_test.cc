// What int8 weights cost in quality: the shipped model with them against itself as stored (bfloat16), on the
// conversations of its own evaluation, every token after the first. It prints what docs/measurements.md
// shows: the mean and the largest Kullback-Leibler divergence KL(stored || int8) per token, in nats, and both
// perplexities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/engine/engine.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace baton {
namespace {

using Json = text::ChatTemplate::Json;

const std::string kFolder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
constexpr int64_t kChunk = 256;

// Every tenth of the 200 conversations: each length and each kind of fact is among them.
std::vector<std::vector<TokenId>> Texts() {
  const auto chat = text::ChatTemplate::Load(kFolder);
  const auto tokenizer = text::Tokenizer::Load(kFolder);
  EXPECT_TRUE(chat.ok() && tokenizer.ok());
  std::ifstream file(kFolder + "/eval/recall.jsonl");
  std::vector<std::vector<TokenId>> texts;
  std::string line;
  for (int i = 0; std::getline(file, line); ++i) {
    if (i % 10 != 0) continue;
    const auto rendered = (*chat)->Render({{"messages", Json::parse(line)["messages"]}});
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    texts.push_back((*tokenizer)->Encode(*rendered, /*add_special_tokens=*/false).value());
  }
  return texts;
}

// The log probabilities of all tokens after each of `rows` tokens: [rows][vocabulary].
std::vector<double> LogProbabilities(engine::Engine& engine, std::span<const TokenId> tokens, int64_t first,
                                     std::span<const BlockId> blocks) {
  engine::Batch batch;
  batch.Add({.tokens = tokens, .first_position = first, .blocks = blocks, .logit_rows = std::ssize(tokens)});
  const engine::StepResult result = engine.Forward(batch, [](int) {});
  const std::span<const float> logits = result.logits();
  std::vector<double> out(logits.begin(), logits.end());
  const auto vocabulary = static_cast<size_t>(engine.config().vocabulary);
  for (size_t row = 0; row < out.size(); row += vocabulary) {
    const auto begin = out.begin() + static_cast<int64_t>(row),
               end = begin + static_cast<int64_t>(vocabulary);
    const double largest = *std::max_element(begin, end);
    double total = 0;
    for (auto at = begin; at != end; ++at) total += std::exp(*at - largest);
    const double norm = largest + std::log(total);
    for (auto at = begin; at != end; ++at) *at -= norm;
  }
  return out;
}

TEST(WeightsQualityTest, Int8StaysCloseToWhatIsStored) {
  auto stored = engine::Engine::Load({.model_folder = kFolder, .kv_bytes = int64_t{64} << 20});
  auto integers = engine::Engine::Load(
      {.model_folder = kFolder, .kv_bytes = int64_t{64} << 20, .weights = model::WeightPrecision::kInt8});
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_TRUE(integers.ok()) << integers.status();
  const auto vocabulary = static_cast<size_t>((*stored)->config().vocabulary);
  double divergence = 0, worst = 0, surprise = 0, surprise_int8 = 0;
  int64_t tokens = 0, same_choice = 0;
  for (const std::vector<TokenId>& text : Texts()) {
    const auto blocks = (*stored)->pool().Allocate(BlocksFor(std::ssize(text)));
    const auto twins = (*integers)->pool().Allocate(BlocksFor(std::ssize(text)));
    ASSERT_TRUE(blocks.ok() && twins.ok());
    for (int64_t first = 0; first + 1 < std::ssize(text); first += kChunk) {
      const auto rows = std::min<int64_t>(kChunk, std::ssize(text) - 1 - first);
      const std::span<const TokenId> chunk(text.data() + first, static_cast<size_t>(rows));
      const std::vector<double> p = LogProbabilities(**stored, chunk, first, *blocks),
                                q = LogProbabilities(**integers, chunk, first, *twins);
      for (int64_t r = 0; r < rows; ++r) {
        const double* of_stored = p.data() + static_cast<size_t>(r) * vocabulary;
        const double* of_int8 = q.data() + static_cast<size_t>(r) * vocabulary;
        double here = 0;
        for (size_t v = 0; v < vocabulary; ++v) here += std::exp(of_stored[v]) * (of_stored[v] - of_int8[v]);
        divergence += here;
        worst = std::max(worst, here);
        const auto next = static_cast<size_t>(text[static_cast<size_t>(first + r + 1)].value());
        surprise -= of_stored[next];
        surprise_int8 -= of_int8[next];
        same_choice += std::max_element(of_stored, of_stored + vocabulary) - of_stored ==
                       std::max_element(of_int8, of_int8 + vocabulary) - of_int8;
        ++tokens;
      }
    }
    (*stored)->pool().Release(*blocks);
    (*integers)->pool().Release(*twins);
  }
  ASSERT_GT(tokens, 5000);
  const auto count = static_cast<double>(tokens);
  const double perplexity = std::exp(surprise / count), perplexity_int8 = std::exp(surprise_int8 / count);
  std::printf(
      "%ld tokens: KLD mean %.6f, largest %.4f; perplexity %.4f stored, %.4f int8; same likeliest token "
      "%.2f%%\n",
      tokens, divergence / count, worst, perplexity, perplexity_int8,
      100 * static_cast<double>(same_choice) / count);
  EXPECT_GT(divergence / count, 1e-7) << "both have the same weights";
  EXPECT_LE(divergence / count, 0.003);
  EXPECT_NEAR(perplexity_int8 / perplexity, 1, 0.005);
}

}  // namespace
}  // namespace baton
