// Quantizer: a matrix of a checkpoint in the precision that --weights asks for, made at load. The result is a
// function of the matrix alone, whatever the number of threads, and of its whole rows: a rank that holds some
// columns of a row rounds them as one that holds all. Of one load, on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/thread_pool.h"
#include "engine/kernels/weight_view.h"
#include "engine/model/column_exponents.h"
#include "engine/model/error_feedback.h"
#include "engine/model/shard.h"

namespace baton::model {

enum class WeightPrecision {
  kStored,  // as it is in the file
  kF32,     // widened, or what quantized numbers stand for; activations are float32 too
  kBF16,    // rounded to the nearest, ties to even
  // Each row around 0, with a scale: s = max|w| / 127, and w * (127 / max|w|) to the nearest integer, ties to
  // even. A row of magnitudes below 2^-100 becomes zeros. With transformed columns w is what they became, and
  // s is divided by their block.
  kInt8,
  // Groups of 16 columns of 4 bits on the lattice of int8 (lattice.h); int8 for the matrices that the recipe
  // names (PrecisionFor).
  kInt4,
};

// True for int8 and int4, which lose less of transformed columns.
constexpr bool MakesIntegers(WeightPrecision precision) {
  return precision == WeightPrecision::kInt8 || precision == WeightPrecision::kInt4;
}

// "stored", "f32", "bf16", "int8", "int4": as in flags.
std::string_view Name(WeightPrecision precision);
// The names and what they stand for: the choices of --weights.
const std::vector<std::pair<std::string, WeightPrecision>>& WeightPrecisions();

// True for the router of a mixture of experts, and for the gate of its shared expert. Those that a folder
// stores as floats are multiplied in float32, whatever else is bfloat16: rounded activations would choose
// other experts.
bool IsRouter(std::string_view tensor);

// The precision of a tensor under `precision`: kInt4 leaves some matrices in kInt8, by the last parts of
// their names, and none rounds the routers of mixtures, where rounding would make ties: those stay as they
// are stored. Whoever changes the recipe changes the version in the digest of the weights (weights.cc).
WeightPrecision PrecisionFor(WeightPrecision precision, std::string_view tensor);

// INVALID_ARGUMENT: a rank that holds the columns `own` of `cols` would cut a block of them. precision: of
// the message.
absl::Status CheckBlocks(WeightPrecision precision, int64_t cols, Range own, int64_t block);

// A matrix that was converted; the view points into it, and to what the quantizer has of its columns. A
// copy's view would point into the original, so it moves only.
struct ConvertedMatrix {
  ConvertedMatrix() = default;
  ConvertedMatrix(ConvertedMatrix&&) = default;
  ConvertedMatrix& operator=(ConvertedMatrix&&) = default;

  std::vector<std::byte> values;
  std::vector<float> scales;            // of each row, if quantized
  std::vector<uint8_t> factors, zeros;  // of each group of each row, of 4 bits
  kernels::WeightView view;
};

// Values converted so far, and of all that will be.
using ConversionProgress = std::function<void(int64_t done, int64_t all)>;

class Quantizer {
 public:
  // `threads` to work with, at least 1.
  Quantizer(WeightPrecision precision, int threads) : precision_(precision), pool_(threads) {}
  // On the cores of a share.
  Quantizer(WeightPrecision precision, device::CoreShare& cores) : precision_(precision), pool_(cores) {}

  WeightPrecision precision() const { return precision_; }
  // From now on integers are made of transformed columns (kernels::ColumnTransform).
  void TransformColumns(ColumnExponents exponents = {}) {
    transforms_ = MakesIntegers(precision_);
    exponents_ = std::move(exponents);
  }
  bool transforms() const { return transforms_; }
  const ColumnExponents& exponents() const { return exponents_; }
  // From now on matrices of 4 bits are rounded with the feedback of their tensor (error_feedback.h), where
  // there is any; whole rows alone.
  void FeedBack(std::function<const ErrorFeedback*(std::string_view tensor)> of) {
    feedback_of_ = std::move(of);
  }
  // Convert reports to `progress`, out of the values that Expect named.
  void Report(ConversionProgress progress) { progress_ = std::move(progress); }
  void Expect(int64_t values) {
    all_ = values;
    done_ = 0;
  }
  // True if Convert would change a matrix of this dtype, the tensor `name`.
  bool Changes(tensor::DType dtype, std::string_view name) const;
  // The columns `own` of all rows of `matrix`, the tensor `name`, which need not be aligned. Of 4 bits,
  // columns that do not begin with a group become the int8 weights that they stand for. block: columns that
  // are transformed together; 0: none are. INVALID_ARGUMENT names the first row that holds no finite number,
  // or if integers can't have rows of this length, or if `own` cuts a block.
  absl::StatusOr<ConvertedMatrix> Convert(std::string_view name, const kernels::WeightView& matrix, Range own,
                                          int64_t block = 0);

 private:
  // A row on the lattice: its columns `own` become row r of `out`.
  struct Rounded {
    std::vector<uint8_t> factors, zeros, values;
    explicit Rounded(int64_t cols);
    LatticeRow row() { return {factors, zeros, values}; }
  };
  static void Keep(const Rounded& rounded, float scale, int64_t r, Range own, ConvertedMatrix& out);

  const WeightPrecision precision_;
  bool transforms_ = false;
  ColumnExponents exponents_;
  device::ThreadPool pool_;
  ConversionProgress progress_;                                        // or empty
  std::function<const ErrorFeedback*(std::string_view)> feedback_of_;  // or empty
  int64_t all_ = 0, done_ = 0;
};

}  // namespace baton::model
