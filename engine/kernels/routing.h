// ChooseExperts: the part of Kernels::Route that only compares: which experts a row gets, and with which
// weights, once the scores are computed. Pure, any thread.
#pragma once

#include <span>

#include "engine/kernels/experts.h"

namespace baton::kernels {

// A row's `logits` [experts], their `scores` [experts] (of no use with late_softmax), `choice_bias` [experts]
// or empty. Writes the `chosen` entries of `to`: ascending ids, and as weights the scores, or the logits with
// late_softmax; neither normalized nor scaled. `scratch` [experts] is overwritten. NaN never wins, as long as
// there are numbers.
void ChooseExperts(const Routing& routing, std::span<const float> logits, std::span<const float> scores,
                   std::span<const float> choice_bias, std::span<float> scratch, std::span<ExpertChoice> to);

// The weights over their sum, if `normalize`, and times `scale`.
void FinishWeights(const Routing& routing, std::span<ExpertChoice> row);

}  // namespace baton::kernels
