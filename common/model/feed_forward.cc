#include "common/model/feed_forward.h"

namespace baton::model {

using kernels::Matrix;

FeedForward::Scratch FeedForward::Take(Arena& arena, int64_t rows) const {
  const tensor::DType precision = rank_.kernels.activation_dtype();
  const int64_t width = weights_.down->cols();
  return {.gate_up = arena.Take(rows, 2 * width, precision), .activated = arena.Take(rows, width, precision)};
}

void FeedForward::Forward(Matrix normed, const Scratch& scratch, Matrix out) const {
  rank_.kernels.MatMul(normed, *weights_.gate_up, weights_.gate_up_bias.view(), scratch.gate_up);
  rank_.kernels.SwiGlu(scratch.gate_up, scratch.activated);
  rank_.MatMulSum(scratch.activated, *weights_.down, weights_.down_bias.view(), out);
}

}  // namespace baton::model
