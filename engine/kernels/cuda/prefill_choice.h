// Which kernel computes a GPU's prefill attention: the wgmma kernel on GPUs of compute capability 9.0 where
// it has passed its start-up check (prefill_proof.h), and the mma.sync kernel everywhere else. The decision
// and the text of its warning are made here, without a GPU. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace baton::kernels::cuda {

enum class PrefillKernel : uint8_t { kMma, kWgmma };

struct PrefillChoice {
  PrefillKernel kernel = PrefillKernel::kMma;
  std::string warning;  // for the operator, if the GPU has wgmma and the kernel failed; else empty
};

// True if a GPU of this compute capability has wgmma: code for sm_90a runs on 9.0 alone, not on later ones.
constexpr bool HasWgmma(int major, int minor) { return major == 9 && minor == 0; }

// `prove` is asked only where the GPU could. `gpu`: its number and name, for the warning.
PrefillChoice ChoosePrefill(int major, int minor, const std::string& gpu,
                            absl::FunctionRef<absl::Status()> prove);

// OK if wgmma's results are numbers and as near to mma's as rounding probabilities and results to bf16
// allows, for values of the order of 1; if not, the error says how many are off, and the worst. `what`: the
// case.
absl::Status Agree(std::span<const float> mma, std::span<const float> wgmma, const std::string& what);

}  // namespace baton::kernels::cuda
