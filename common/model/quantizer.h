// Quantizer: a matrix of a checkpoint in the precision that --weights asks for, made at load. The result is a
// function of the matrix alone, whatever the number of threads, and of its whole rows: a rank that holds some
// columns of a row rounds them as one that holds all. Of one load, on its thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/thread_pool.h"
#include "common/kernels/weight_view.h"
#include "common/model/shard.h"

namespace baton::model {

enum class WeightPrecision {
  kStored,  // as it is in the file
  kBF16,    // rounded to the nearest, ties to even
  // Each row around 0, with a scale: s = max|w| / 127, and w * (127 / max|w|) to the nearest integer, ties to
  // even. A row of magnitudes below 2^-100 becomes zeros.
  kInt8,
};

// "stored", "bf16", "int8": as in flags.
std::string_view Name(WeightPrecision precision);
// The names and what they stand for: the choices of --weights.
const std::vector<std::pair<std::string, WeightPrecision>>& WeightPrecisions();

// A matrix that was converted; the view points into it.
struct ConvertedMatrix {
  std::vector<std::byte> values;
  std::vector<float> scales;  // of each row, if quantized
  kernels::WeightView view;
};

class Quantizer {
 public:
  // `threads` to work with, at least 1.
  Quantizer(WeightPrecision precision, int threads) : precision_(precision), pool_(threads) {}

  WeightPrecision precision() const { return precision_; }
  // Whether Convert would change a matrix of this dtype.
  bool Changes(tensor::DType dtype) const;
  // The columns `own` of all rows of `matrix`, which is not quantized and need not be aligned.
  // INVALID_ARGUMENT names the first row that holds no finite number, or if int8 can't have rows of this
  // length.
  absl::StatusOr<ConvertedMatrix> Convert(const kernels::WeightView& matrix, Range own);

 private:
  const WeightPrecision precision_;
  device::ThreadPool pool_;
};

}  // namespace baton::model
