// Arguments of the operations of a mixture of experts (Kernels::Route, Kernels::Experts). Plain data.
//
// A row's result depends on that row alone: it is the sum of its experts' results in ascending order of ids,
// each times its weight, whatever other rows chose. A shared expert, which every row has, comes behind all
// others: its id is Routing::experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/check.h"

namespace baton::kernels {

class PackedMatrix;

// How a row of router logits becomes experts and their weights:
//   s      = the score of each logit: softmax over all experts, or sigmoid of each. (What is below 2^-126 may
//            count as 0.)
//   choice = the `chosen` experts with the largest s + choice_bias (with `late_softmax`: the largest logits).
//            Among equals the lowest id. With groups: only from the `chosen_groups` whose two best add up to
//            most
//   weight = s of each (with `late_softmax`: softmax over the chosen logits), over their sum if `normalize`,
//            times `scale`
struct Routing {
  enum class Score { kSoftmax, kSigmoid };
  int experts = 0;
  int chosen = 0;  // at most `experts`
  Score score = Score::kSoftmax;
  bool late_softmax = false;
  bool normalize = false;
  float scale = 1;
  int groups = 1;  // divides `experts`; several: at least two experts in each
  int chosen_groups = 1;
  // Every row has expert number `experts`, too: with weight 1, or sigmoid(logit `experts`) if gated.
  bool shared = false;
  bool shared_gated = false;

  int per_row() const { return chosen + (shared ? 1 : 0); }
  int logits() const { return experts + (shared_gated ? 1 : 0); }
};

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0;
};

// [rows][per_row], each row in ascending order of ids, none twice. In a backend's memory.
struct Choices {
  ExpertChoice* data = nullptr;
  int64_t rows = 0;
  int per_row = 0;

  // In host memory.
  std::span<ExpertChoice> row(int64_t r) const {
    BATON_DCHECK(r >= 0 && r < rows);
    return {data + r * per_row, static_cast<size_t>(per_row)};
  }
};

// One expert: down(act(gate x, up x)), each product plus its bias.
struct Expert {
  const PackedMatrix* gate_up = nullptr;     // [2 width, hidden]
  const PackedMatrix* down = nullptr;        // [hidden, width]
  std::span<const float> gate_up_bias = {};  // [2 width], or empty
  std::span<const float> down_bias = {};     // [hidden], or empty
};

// Brings the weights of a layer's experts to where products can read them, if not all are there at once: each
// matrix of those that are there has its place then (PackedMatrix::Place). The kernels' thread.
class ExpertResidency {
 public:
  virtual ~ExpertResidency() = default;
  // Holds as many of `experts` as find room together, at least one; their number. They come to the front,
  // those first that are there soonest. Nothing is held yet.
  virtual size_t Hold(std::span<int32_t> experts) = 0;
  // Waits until so many of them, from the front, are there; how many are, which may be more.
  virtual size_t Await(size_t count) = 0;
  // Releases all that are held. They may go from now on.
  virtual void Release() = 0;
};

// All experts of a layer, by id; a shared expert comes last and may have a width of its own.
struct ExpertLayer {
  std::span<const Expert> experts;
  bool exact_sums = false;  // of every `down` (PackedMatrix::exact_sums)
  // act(g, u) = silu(g) * u for 0. With a limit (gpt-oss), g' = min(g, limit), u' = u within +-limit:
  // act(g, u) = g' * sigmoid(slope g') * (u' + 1)
  float limit = 0;
  float slope = 1;
  ExpertResidency* residency = nullptr;  // null: all weights are there
};

}  // namespace baton::kernels
