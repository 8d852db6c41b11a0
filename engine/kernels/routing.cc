#include "engine/kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "common/base/check.h"

namespace baton::kernels {
namespace {

constexpr float kTaken = -std::numeric_limits<float>::infinity();
// DeepSeek-V3's guard against scores that are all zero; too small to change any other sum.
constexpr float kLeastSum = 1e-20f;

// The place of the largest value, the first among equals; of values that are all NaN or taken, the first one.
size_t Largest(std::span<const float> values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best] || std::isnan(values[best])) best = i;
  }
  return best;
}

// Rules out all experts outside of the best groups.
void MaskGroups(const Routing& routing, std::span<float> values) {
  const auto size = static_cast<size_t>(routing.experts / routing.groups);
  BATON_CHECK(size >= 2) << " experts of a group";
  constexpr int kMostGroups = 256;
  BATON_CHECK(routing.groups <= kMostGroups) << " groups";
  float sums[kMostGroups];
  bool kept[kMostGroups] = {};
  for (int g = 0; g < routing.groups; ++g) {
    const std::span<const float> group = values.subspan(static_cast<size_t>(g) * size, size);
    float first = kTaken, second = kTaken;
    for (const float value : group) {
      second = std::max(second, std::min(first, value));
      first = std::max(first, value);
    }
    sums[g] = first + second;
  }
  for (int taken = 0; taken < routing.chosen_groups; ++taken) {
    int best = -1;
    for (int g = 0; g < routing.groups; ++g) {
      if (!kept[g] && (best < 0 || sums[g] > sums[best])) best = g;
    }
    kept[best] = true;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!kept[i / size]) values[i] = kTaken;
  }
}

}  // namespace

void ChooseExperts(const Routing& routing, std::span<const float> logits, std::span<const float> scores,
                   std::span<const float> choice_bias, std::span<float> scratch, std::span<ExpertChoice> to) {
  const auto experts = static_cast<size_t>(routing.experts);
  const auto chosen = static_cast<size_t>(routing.chosen);
  BATON_CHECK(logits.size() >= experts && scratch.size() >= experts && to.size() >= chosen &&
              chosen <= experts);
  const std::span<const float> by = routing.late_softmax ? logits.first(experts) : scores.first(experts);
  const std::span<float> values = scratch.first(experts);
  for (size_t e = 0; e < experts; ++e) values[e] = choice_bias.empty() ? by[e] : by[e] + choice_bias[e];
  if (routing.groups > 1) MaskGroups(routing, values);
  const std::span<ExpertChoice> row = to.first(chosen);
  for (size_t k = 0; k < chosen; ++k) {
    size_t best = Largest(values);
    if (!(values[best] > kTaken)) {
      // Nothing but -infinity and NaN is left: the lowest ids that are free.
      for (best = 0;; ++best) {
        const auto id = static_cast<int32_t>(best);
        if (std::ranges::none_of(row.first(k), [id](const ExpertChoice& c) { return c.expert == id; })) break;
      }
    }
    row[k] = {.expert = static_cast<int32_t>(best), .weight = by[best]};
    values[best] = kTaken;
  }
  std::ranges::sort(row, {}, &ExpertChoice::expert);
}

void FinishWeights(const Routing& routing, std::span<ExpertChoice> row) {
  if (routing.normalize) {
    float sum = 0;
    for (const ExpertChoice& choice : row) sum += choice.weight;
    sum += kLeastSum;
    for (ExpertChoice& choice : row) choice.weight /= sum;
  }
  if (routing.scale == 1) return;
  for (ExpertChoice& choice : row) choice.weight *= routing.scale;
}

}  // namespace baton::kernels
