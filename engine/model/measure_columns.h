// MeasureColumns: the ColumnExponents of a model, from a pass through it as it is stored: of 128 tokens, or
// of the context if that is shorter, a layer at a time in memory.
//
//   token i = (i + 1) * 2654435761 mod 2^32, times the vocabulary, divided by 2^32
//
// The pass is that of Decoder, of dense models. Mixtures of experts have no exponents, because few tokens
// reach each expert, nor have folders whose matrices are integers, most of which are kept as they are.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/kernels/kernels.h"
#include "engine/model/column_exponents.h"

namespace baton::model {

// By kernels in host memory, on their thread. Errors are those of Decoder::Load.
absl::StatusOr<ColumnExponents> MeasureColumns(const std::string& folder, kernels::Kernels& kernels);

}  // namespace baton::model
