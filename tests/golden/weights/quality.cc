#include "tests/golden/weights/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace baton {
namespace {

using Json = text::ChatTemplate::Json;

constexpr int64_t kChunk = 256;

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

}  // namespace

// Every tenth of the 200 conversations: each length and each kind of fact is among them.
std::vector<std::vector<TokenId>> Conversations(const std::string& folder) {
  const auto chat = text::ChatTemplate::Load(folder);
  const auto tokenizer = text::Tokenizer::Load(folder);
  BATON_CHECK(chat.ok() && tokenizer.ok()) << folder;
  std::ifstream file(folder + "/eval/recall.jsonl");
  std::vector<std::vector<TokenId>> texts;
  std::string line;
  for (int i = 0; std::getline(file, line); ++i) {
    if (i % 10 != 0) continue;
    const auto rendered = (*chat)->Render({{"messages", Json::parse(line)["messages"]}});
    BATON_CHECK(rendered.ok()) << rendered.status().ToString();
    texts.push_back((*tokenizer)->Encode(*rendered, /*add_special_tokens=*/false).value());
  }
  return texts;
}

Quality Compare(engine::Engine& stored, engine::Engine& other,
                const std::vector<std::vector<TokenId>>& texts) {
  const auto vocabulary = static_cast<size_t>(stored.config().vocabulary);
  Quality sum;
  for (const std::vector<TokenId>& text : texts) {
    const auto blocks = stored.pool().Allocate(BlocksFor(std::ssize(text)));
    const auto twins = other.pool().Allocate(BlocksFor(std::ssize(text)));
    BATON_CHECK(blocks.ok() && twins.ok());
    for (int64_t first = 0; first + 1 < std::ssize(text); first += kChunk) {
      const auto rows = std::min<int64_t>(kChunk, std::ssize(text) - 1 - first);
      const std::span<const TokenId> chunk(text.data() + first, static_cast<size_t>(rows));
      const std::vector<double> p = LogProbabilities(stored, chunk, first, *blocks),
                                q = LogProbabilities(other, chunk, first, *twins);
      for (int64_t r = 0; r < rows; ++r) {
        const double* of_stored = p.data() + static_cast<size_t>(r) * vocabulary;
        const double* of_other = q.data() + static_cast<size_t>(r) * vocabulary;
        double here = 0;
        for (size_t v = 0; v < vocabulary; ++v) here += std::exp(of_stored[v]) * (of_stored[v] - of_other[v]);
        sum.divergence += here;
        sum.worst = std::max(sum.worst, here);
        const auto next = static_cast<size_t>(text[static_cast<size_t>(first + r + 1)].value());
        sum.perplexity_stored -= of_stored[next];
        sum.perplexity -= of_other[next];
        sum.same_choice += std::max_element(of_stored, of_stored + vocabulary) - of_stored ==
                           std::max_element(of_other, of_other + vocabulary) - of_other;
        ++sum.tokens;
      }
    }
    stored.pool().Release(*blocks);
    other.pool().Release(*twins);
  }
  const auto count = static_cast<double>(sum.tokens);
  sum.divergence /= count;
  sum.perplexity_stored = std::exp(sum.perplexity_stored / count);
  sum.perplexity = std::exp(sum.perplexity / count);
  sum.same_choice /= count;
  return sum;
}

std::string Describe(const Quality& quality) {
  return fmt::format(
      "{} tokens: KLD mean {:.6f}, largest {:.4f}; perplexity {:.4f} stored, {:.4f} here; same likeliest "
      "token "
      "{:.2f}%",
      quality.tokens, quality.divergence, quality.worst, quality.perplexity_stored, quality.perplexity,
      100 * quality.same_choice);
}

}  // namespace baton
