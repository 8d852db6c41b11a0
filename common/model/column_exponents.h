// ColumnExponents: the powers of two by which the columns of a model's matrices are transformed
// (kernels::ColumnTransform), from what goes into them: a row of activations is to have columns of sizes that
// lie closer together. They are measured: kRows drawn tokens go through the model as it is stored. For each
// input of matrices
//
//   h[k] = the mean of x[k]^2 over the rows, in float32, summed up in the order of the rows
//   e[k] = floor((E + 4) / 8), E = floor(log2 h[k]) held within +-60
//   token i = (i + 1) * 2654435761 mod 2^32, times the vocabulary, divided by 2^32
//
// e is a quarter of log2 of the root mean square, rounded: all of it would make the weights uneven instead.
// The tokens are Knuth's multiplicative hash. Mixtures of experts have no exponents: few tokens reach each
// expert. Immutable, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/kernels.h"
#include "common/model/checkpoint.h"
#include "common/model/config/config.h"
#include "common/model/config/quantization.h"

namespace baton::model {

class ColumnExponents {
 public:
  static constexpr int64_t kRows = 128;  // or the context, if that is shorter

  // None: all are zero.
  ColumnExponents() = default;

  // Measures a dense model, whole, by kernels in host memory. A layer at a time is in memory. `rope`,
  // `other`: as AttentionBlock and OtherLayers have them. Errors are those of packing the model as it is
  // stored.
  static absl::StatusOr<ColumnExponents> Measure(const std::string& folder, const Checkpoint& checkpoint,
                                                 const ModelConfig& config, const QuantizationConfig& stored,
                                                 const kernels::RopeTable& rope,
                                                 const kernels::RopeTable& other, kernels::Kernels& kernels);

  // [columns] of a matrix, by the name of its tensor; null: zeros.
  const int8_t* Of(std::string_view tensor) const;
  // A digest of all, 32 bytes; empty if there are none.
  std::string Digest() const;

 private:
  class Pass;

  using Exponents = std::shared_ptr<const std::vector<int8_t>>;  // of matrices with one input
  std::map<std::string, Exponents, std::less<>> of_;
};

// e of one column.
int8_t ExponentOf(float mean_square);

}  // namespace baton::model
