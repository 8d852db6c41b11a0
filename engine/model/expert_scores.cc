#include "engine/model/expert_scores.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace baton::model {

ExpertScores::ExpertScores(const ModelConfig& config) {
  for (int l = 0; l < config.layers; ++l) {
    sums_.emplace_back(config.has_experts(l) ? static_cast<size_t>(config.experts.experts) : 0);
  }
}

void ExpertScores::Chose(int layer, const kernels::Choices& choices, std::span<const double> norms) {
  std::vector<Sum>& sums = sums_[static_cast<size_t>(layer)];
  for (int64_t r = 0; r < choices.rows; ++r) {
    const std::span<const kernels::ExpertChoice> row = choices.row(r);
    for (size_t k = 0; k < row.size(); ++k) {
      const auto expert = static_cast<size_t>(row[k].expert);
      if (expert >= sums.size()) continue;  // the shared one
      sums[expert].score += double{row[k].weight} * norms[static_cast<size_t>(r * choices.per_row) + k];
      ++sums[expert].tokens;
    }
  }
}

std::vector<double> ExpertScores::Of(int layer) const {
  std::vector<double> scores;
  for (const Sum& sum : sums_[static_cast<size_t>(layer)]) {
    scores.push_back(sum.tokens == 0 ? 0 : sum.score / static_cast<double>(sum.tokens));
  }
  return scores;
}

std::vector<int64_t> ExpertScores::Tokens(int layer) const {
  std::vector<int64_t> tokens;
  for (const Sum& sum : sums_[static_cast<size_t>(layer)]) tokens.push_back(sum.tokens);
  return tokens;
}

std::vector<int> BestExperts(std::span<const double> scores, int kept, int groups) {
  BATON_CHECK(groups > 0 && kept % groups == 0 && std::ssize(scores) % groups == 0 &&
              kept <= std::ssize(scores));
  const int size = static_cast<int>(std::ssize(scores)) / groups;
  std::vector<int> best;
  for (int g = 0; g < groups; ++g) {
    std::vector<int> ids(static_cast<size_t>(size));
    std::iota(ids.begin(), ids.end(), g * size);
    std::ranges::stable_sort(
        ids, [&](int a, int b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
    ids.resize(static_cast<size_t>(kept / groups));
    std::ranges::sort(ids);
    best.insert(best.end(), ids.begin(), ids.end());
  }
  return best;
}

}  // namespace baton::model
