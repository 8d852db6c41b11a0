// StepTotals: sums over a decode worker's steps that had answers and no rows of prompts. The means between
// two moments say what an answer's steps took and held, by which workers can be compared: a step with drafts
// counts as what it would have taken without them, for a worker is no slower where more is drafted. Plain
// data.
#pragma once

#include <cstdint>
#include <optional>

namespace baton::forecast {

struct StepMeans {
  double seconds = 0;
  double answers = 0;
  double context = 0;  // tokens that all of them attend to
};

struct StepTotals {
  int64_t steps = 0;
  double seconds = 0;
  int64_t answers = 0;  // in each, added up
  int64_t context = 0;  // tokens that those attended to, likewise

  void Add(double took, int64_t running, int64_t attended) {
    ++steps;
    seconds += took;
    answers += running;
    context += attended;
  }
  // Over the steps since `earlier`, a moment of the same worker; nothing if there was none.
  std::optional<StepMeans> MeansSince(const StepTotals& earlier) const {
    const auto count = static_cast<double>(steps - earlier.steps);
    if (count <= 0) return std::nullopt;
    return StepMeans{.seconds = (seconds - earlier.seconds) / count,
                     .answers = static_cast<double>(answers - earlier.answers) / count,
                     .context = static_cast<double>(context - earlier.context) / count};
  }
};

}  // namespace baton::forecast
