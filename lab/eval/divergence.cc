#include "lab/eval/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "common/base/check.h"
#include "engine/device/thread_pool.h"

namespace baton::lab {
namespace {

constexpr int64_t kChunk = 256;

// The log of the sum of exp over `logits`.
double LogSum(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

struct Position {
  double divergence = 0, log_reference = 0, log_other = 0;  // logs: of the token that follows
  bool same_choice = false;
};

double DivergenceOf(std::span<const float> p, std::span<const float> q, double log_sum_p, double log_sum_q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - log_sum_p, probability = std::exp(log_p);
    if (probability == 0) continue;
    sum += probability * (log_p - (q[i] - log_sum_q));
  }
  return std::isfinite(sum) ? std::max(0.0, sum) : std::numeric_limits<double>::infinity();
}

Position ComparePosition(std::span<const float> p, std::span<const float> q, TokenId next) {
  const double log_sum_p = LogSum(p), log_sum_q = LogSum(q);
  const auto at = static_cast<size_t>(next.value());
  return {.divergence = DivergenceOf(p, q, log_sum_p, log_sum_q),
          .log_reference = p[at] - log_sum_p,
          .log_other = q[at] - log_sum_q,
          .same_choice = std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin()};
}

// Blocks of a pool, for one text.
class TextBlocks {
 public:
  TextBlocks(engine::Engine& engine, int64_t tokens) : pool_(engine.pool()) {
    auto blocks = pool_.Allocate(BlocksFor(tokens));
    BATON_CHECK(blocks.ok()) << blocks.status();
    blocks_ = *std::move(blocks);
  }
  ~TextBlocks() { pool_.Release(blocks_); }
  TextBlocks(const TextBlocks&) = delete;
  TextBlocks& operator=(const TextBlocks&) = delete;

  std::span<const BlockId> blocks() const { return blocks_; }

 private:
  kv::BlockPool& pool_;
  std::vector<BlockId> blocks_;
};

}  // namespace

double Divergence(std::span<const float> p, std::span<const float> q) {
  return DivergenceOf(p, q, LogSum(p), LogSum(q));
}

Distance Compare(engine::Engine& reference, engine::Engine& other,
                 const std::vector<std::vector<TokenId>>& texts, int threads) {
  BATON_CHECK(reference.config().vocabulary == other.config().vocabulary);
  device::ThreadPool pool(threads);
  std::vector<Position> positions;
  for (const std::vector<TokenId>& text : texts) {
    const TextBlocks blocks(reference, std::ssize(text)), twins(other, std::ssize(text));
    for (int64_t first = 0; first + 1 < std::ssize(text); first += kChunk) {
      const int64_t rows = std::min<int64_t>(kChunk, std::ssize(text) - 1 - first);
      const auto forward = [&](engine::Engine& engine, std::span<const BlockId> own) {
        engine::Batch batch;
        batch.Add({.tokens = std::span(text).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                   .first_position = first,
                   .blocks = own,
                   .logit_rows = rows});
        return engine.Forward(batch, [](int) {});
      };
      const engine::StepResult p = forward(reference, blocks.blocks()), q = forward(other, twins.blocks());
      const size_t before = positions.size();
      positions.resize(before + static_cast<size_t>(rows));
      pool.ParallelFor(rows, [&](int64_t row) {
        positions[before + static_cast<size_t>(row)] =
            ComparePosition(p.logits(0, row), q.logits(0, row), text[static_cast<size_t>(first + row + 1)]);
      });
    }
  }
  BATON_CHECK(!positions.empty());
  Distance result{.positions = std::ssize(positions)};
  std::vector<double> divergences;
  double log_reference = 0, log_other = 0;
  for (const Position& position : positions) {
    divergences.push_back(position.divergence);
    result.mean += position.divergence;
    log_reference += position.log_reference;
    log_other += position.log_other;
    result.same_choice += position.same_choice ? 1 : 0;
  }
  const auto count = static_cast<double>(positions.size());
  result.mean /= count;
  result.same_choice /= count;
  result.perplexity_reference = std::exp(-log_reference / count);
  result.perplexity = std::exp(-log_other / count);
  std::ranges::sort(divergences);
  result.p99 = divergences[static_cast<size_t>(std::ceil(0.99 * count)) - 1];
  result.largest = divergences.back();
  return result;
}

}  // namespace baton::lab
