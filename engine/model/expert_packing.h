// Experts outside memory: how an expert lies in a file (expert_file.h), the file that `baton model pack`
// makes of a model folder, and what a load does with such a file. Any thread, once at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "engine/model/expert_file.h"
#include "engine/model/quantizer.h"
#include "engine/model/weights.h"
#include "text/config/config.h"

namespace baton::model {

// The bytes of an expert's matrices, one after the other; UNIMPLEMENTED if the backend has no such form.
absl::StatusOr<std::vector<std::byte>> ImageOf(const ExpertMatrices& expert);
// Lets the matrices have their bytes there, which are those of ImageOf.
void PlaceExpert(std::span<const std::byte> image, const ExpertMatrices& expert);
// Takes them out of memory.
void DropExpert(const ExpertMatrices& expert);

// A digest of the model's shape and the precision of a file's matrices. Equality of the weights is checked by
// their own digest (CheckFits).
Sha256Digest ExpertFingerprint(const ModelConfig& config, WeightPrecision precision);

struct PackOptions {
  std::string folder;  // of a model
  std::string file;    // to write
  WeightPrecision precision = WeightPrecision::kStored;
  int threads = 1;
  ConversionProgress progress = {};
};
struct PackedExperts {
  int64_t experts = 0;
  int64_t bytes = 0;  // of the file
  // The file was there already, whole and of these weights: nothing was written.
  bool were_there = false;
};
// Writes the routed experts of all layers, unless the file has them. Memory: the rest of the model, and one
// expert; to check a file that is there, up to 1 GiB of experts. INVALID_ARGUMENT if the model is no mixture;
// ALREADY_EXISTS if there is another kind of file.
absl::StatusOr<PackedExperts> PackExperts(const PackOptions& options);

// For a load with RoutedExperts::outside: OK if the file is of the weights with this digest, and has each
// expert in the form of its matrices. FAILED_PRECONDITION names the difference.
absl::Status CheckFits(const ExpertFile& file, std::string_view weights_digest, const Weights& weights);

}  // namespace baton::model
