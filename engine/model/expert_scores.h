// ExpertScores: how much each expert of a model matters for what it was shown, by REAP (arXiv 2510.13999):
//   score = the mean, over the tokens that chose the expert, of weight * L2 norm of what it gave
// in float64. An expert that no token chose has score 0. An observer of one decoder, on its thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/expert_block.h"
#include "text/config/config.h"

namespace baton::model {

class ExpertScores final : public ExpertObserver {
 public:
  explicit ExpertScores(const ModelConfig& config);

  void Chose(int layer, const kernels::Choices& choices, std::span<const double> norms) override;

  // [experts]; empty for a layer without any. The shared expert has no score.
  std::vector<double> Of(int layer) const;
  // Tokens that chose each, likewise.
  std::vector<int64_t> Tokens(int layer) const;

 private:
  struct Sum {
    double score = 0;
    int64_t tokens = 0;
  };
  std::vector<std::vector<Sum>> sums_;  // [layers][experts]
};

// The ids of the `kept` experts with the largest scores, ascending; as many of each of `groups` groups. Among
// equals the lowest ids. `groups` divides both.
std::vector<int> BestExperts(std::span<const double> scores, int kept, int groups);

}  // namespace baton::model
