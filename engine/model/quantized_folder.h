// WriteQuantized: a model folder with its matrices in fewer bits. Either as the cpu backend would make them
// at load (quant_method "baton"): the same numbers, without the time. int8 has a scale for each row, 4 bits
// are in groups of 16; columns are transformed (kernels/column_transform.h), in blocks of `weight_exponents`
// [columns / block, block], the exponents of two that they were multiplied by. Or portable,
// as compressed-tensors writes it, so that other programs read it too: int8 as `int-quantized` (W8A8: weights
// with a scale per row, activations with one per token), 4 bits as `pack-quantized` with zeros. Its columns
// are not transformed, which other programs would not undo, so more is lost. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "engine/model/quantizer.h"

namespace baton::model {

struct QuantizeOptions {
  std::string source;                                  // a model folder
  std::string target;                                  // is made; must not exist, or be empty
  WeightPrecision precision = WeightPrecision::kInt8;  // kInt8 or kInt4
  bool portable = false;                               // as compressed-tensors
  // Texts for the error feedback of matrices of 4 bits (calibration.h), of a dense model. Empty: each is
  // rounded to the nearest.
  std::vector<std::vector<TokenId>> calibration = {};
  int threads = 1;
  ConversionProgress progress = {};  // called after each matrix; or empty
};

// Writes model.safetensors and config.json, and copies all other files but weights. Errors name the folder
// and the tensor. ALREADY_EXISTS if there is something at `target`. On an error `target` may hold some files,
// but no config.json, so that nothing loads it.
absl::Status WriteQuantized(const QuantizeOptions& options);

}  // namespace baton::model
