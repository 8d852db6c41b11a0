// ColumnExponents: the powers of two by which the columns of a model's matrices are transformed
// (kernels::ColumnTransform), from what goes into them: a row of activations is to have columns of sizes that
// lie closer together. MeasureColumns finds them. For each input of matrices
//
//   h[k] = the mean of x[k]^2 over the rows, in float32, summed up in the order of the rows
//   e[k] = floor((E + 4) / 8), E = floor(log2 h[k]) held within +-60
//
// e is a quarter of log2 of the root mean square, rounded: all of it would make the weights uneven instead.
// Immutable, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton::model {

class ColumnExponents {
 public:
  // None: all are zero.
  ColumnExponents() = default;

  // The exponents [columns] of matrices with one input, by the names of their tensors.
  void Set(std::span<const std::string> tensors, std::vector<int8_t> exponents);
  // [columns] of a matrix; null: zeros.
  const int8_t* Of(std::string_view tensor) const;
  // A digest of all, 32 bytes; empty if there are none.
  std::string Digest() const;

 private:
  std::map<std::string, std::shared_ptr<const std::vector<int8_t>>, std::less<>> of_;
};

// e of one column.
int8_t ExponentOf(float mean_square);
// The largest magnitude of an e.
inline constexpr int kMostExponent = 8;

}  // namespace baton::model
