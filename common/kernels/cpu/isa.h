// Isa: the instruction sets that the cpu backend is compiled for, in one binary. The vector code is written
// once, in Highway; each of its files is compiled per instruction set and offers its functions as a table, so
// that two backends in one process can use different ones (that is how tests compare them). Pure functions,
// any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace baton::kernels::cpu {

enum class Isa {
  kBaseline,  // what every machine of the architecture has
  kAvx2,      // with FMA
  kAvx512,    // F, BW, CD, DQ, VL
};

// "baseline", "avx2", "avx512".
std::string_view Name(Isa isa);

bool Supported(Isa isa);

// By name, or the best one for "". INVALID_ARGUMENT if the name is unknown, or the machine lacks it.
absl::StatusOr<Isa> ChooseIsa(std::string_view name);

}  // namespace baton::kernels::cpu
