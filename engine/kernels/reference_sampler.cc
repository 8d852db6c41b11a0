#include "engine/kernels/reference_sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "common/base/check.h"

namespace baton::kernels {
namespace {

// As draw.h says it: sorted, weighed, cut three times, and added up until the share is passed.
TokenId DrawOne(std::span<const float> logits, const RowDraw& draw) {
  struct Token {
    float logit;
    int32_t id;
    double weight;  // in units of the likeliest one's
  };
  std::vector<Token> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > -INFINITY)) continue;  // NaN, too
    order.push_back({std::min(logits[i], std::numeric_limits<float>::max()), static_cast<int32_t>(i), 1});
  }
  std::ranges::stable_sort(order, std::greater(), &Token::logit);
  if (order.empty()) return TokenId(-1);
  if (draw.temperature == 0) return TokenId(order.front().id);
  if (draw.top_k > 0 && std::ssize(order) > draw.top_k) order.resize(static_cast<size_t>(draw.top_k));
  double mass = 0;
  for (Token& token : order) {
    token.weight = std::exp((double{token.logit} - double{order.front().logit}) / double{draw.temperature});
    mass += token.weight;
  }
  const double enough = draw.top_p < 1 ? draw.top_p * mass : INFINITY;
  mass = 0;
  size_t kept = 0;
  for (; kept < order.size() && mass < enough && order[kept].weight >= draw.min_p; ++kept) {
    mass += order[kept].weight;
  }
  double passed = 0;
  size_t drawn = 0;
  while ((passed += order[drawn].weight) <= draw.uniform * mass && drawn + 1 < kept) ++drawn;
  return TokenId(order[drawn].id);
}

}  // namespace

bool ReferenceSampler::ReservePenaltySlots(int32_t slots, int64_t vocabulary) {
  if (std::ssize(slots_) < slots) slots_.resize(static_cast<size_t>(slots));
  return true;
}

void ReferenceSampler::Launch(Matrix logits, const StepDraws& draws) {
  BATON_CHECK(in_flight_.size() < 2);
  for (const SeenTokens& start : draws.seen) {
    Seen& seen = slots_.at(static_cast<size_t>(start.slot));
    seen = {.prompt = {start.prompt.begin(), start.prompt.end()}, .output = {}};
    for (TokenId token : start.output) ++seen.output[token];
  }
  last_.clear();
  for (const RowDraw& draw : draws.rows) {
    // Other ranks read the same row.
    std::vector<float> row(logits.row(draw.row), logits.row(draw.row) + logits.cols);
    Adjust(row, draw, draws);
    last_.push_back(DrawOne(row, draw));
    if (draw.slot >= 0) ++slots_.at(static_cast<size_t>(draw.slot)).output[last_.back()];
  }
  in_flight_.push_back(last_);
}

void ReferenceSampler::Await(std::span<TokenId> tokens) {
  BATON_CHECK(!in_flight_.empty() && in_flight_.front().size() == tokens.size());
  std::ranges::copy(in_flight_.front(), tokens.begin());
  in_flight_.pop_front();
}

// The formulas of sampling::Sampler's order, token by token.
void ReferenceSampler::Adjust(std::vector<float>& row, const RowDraw& draw, const StepDraws& draws) const {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const Seen none;
  const Seen& seen = draw.slot < 0 ? none : slots_.at(static_cast<size_t>(draw.slot));
  for (size_t i = 0; i < row.size(); ++i) {
    const TokenId token(static_cast<int32_t>(i));
    const auto found = seen.output.find(token);
    const int count = found == seen.output.end() ? 0 : found->second;
    if (row[i] > kLargest) row[i] = kLargest;
    if (count > 0 || seen.prompt.contains(token)) {
      row[i] = row[i] < 0 ? row[i] * draw.repetition_penalty
                          : std::min(row[i] / draw.repetition_penalty, kLargest);
    }
    if (count > 0) row[i] -= draw.presence_penalty + draw.frequency_penalty * static_cast<float>(count);
  }
  for (const TokenBias& bias :
       draws.biases.subspan(static_cast<size_t>(draw.first_bias), static_cast<size_t>(draw.bias_count))) {
    row[static_cast<size_t>(bias.token)] += bias.bias;
  }
  if (draw.mask_words == 0) return;
  const auto mask =
      draws.masks.subspan(static_cast<size_t>(draw.first_mask), static_cast<size_t>(draw.mask_words));
  for (size_t i = 0; i < row.size(); ++i) {
    const bool allowed = i / 32 < mask.size() && (mask[i / 32] >> (i % 32) & 1) != 0;
    if (!allowed) row[i] = -INFINITY;
  }
}

}  // namespace baton::kernels
