// The arithmetic under sampling, in float64 by plain multiplications and additions in a fixed order: the same
// bits on every machine and for every instruction set, which the C library's exp does not promise. Pure
// functions, any thread.
#pragma once

#include <span>

namespace baton::sampling {

// The largest value; NaN is passed over. -inf if there is none.
float Max(std::span<const float> logits);

// exp((logit - max) / temperature) for logit <= max: a token's probability in units of the likeliest one's.
// Off by at most 4.5e-16 of itself; 0 below 1e-299, and for NaN.
double Weight(float logit, float max, double inverse_temperature);

// The weight of each logit, the very bits of Weight. `weights` has the size of `logits`.
void Weights(std::span<const float> logits, float max, double inverse_temperature, std::span<double> weights);

// Sum of the weights of all logits.
double WeightSum(std::span<const float> logits, float max, double inverse_temperature);

}  // namespace baton::sampling
