// LoadQuantization: how the matrices of a folder are quantized, by its config.json and, where tools are known
// to write a wrong word there, by the tensors themselves. Pure function, any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "text/config/quantization.h"

namespace baton::model {

// Symmetric GPTQ: if every zero of the folder is stored as 8 (128 of 8 bits), it is of the second format
// whatever `checkpoint_format` says, for the first has 7 (127) everywhere.
// (github.com/vllm-project/vllm/pull/38966)
absl::StatusOr<QuantizationConfig> LoadQuantization(const std::string& folder, const Checkpoint& checkpoint);

}  // namespace baton::model
