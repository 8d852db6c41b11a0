#include "engine/model/feed_forward.h"

namespace baton::model {

using kernels::Matrix;

FeedForward::Scratch FeedForward::Take(Arena& arena, int64_t rows) const {
  const tensor::DType precision = rank_.kernels.activation_dtype();
  const int64_t width = weights_.down->cols();
  return {.gate_up = arena.Take(rows, weights_.gate_up->rows(), precision),
          .activated = arena.Take(rows, width, precision)};
}

void FeedForward::Forward(Matrix normed, const Scratch& scratch, Matrix out) const {
  rank_.kernels.MatMul(normed, *weights_.gate_up, weights_.gate_up_bias.view(), scratch.gate_up);
  if (scratch.gate_up.cols == scratch.activated.cols) {
    rank_.kernels.SquaredRelu(scratch.gate_up, scratch.activated);
  } else {
    rank_.kernels.SwiGlu(scratch.gate_up, scratch.activated);
  }
  rank_.MatMulSum(scratch.activated, *weights_.down, weights_.down_bias.view(), out);
}

}  // namespace baton::model
