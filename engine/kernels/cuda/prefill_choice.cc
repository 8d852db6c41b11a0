#include "engine/kernels/cuda/prefill_choice.h"

#include <fmt/format.h>

#include <cmath>

#include "common/base/check.h"

namespace baton::kernels::cuda {
namespace {

// Both kernels round each probability once, in tiles of different sizes and so relative to different maxima:
// two roundings of 2^-9. Both round their results once more.
constexpr float kAbsolute = 1.0f / 128;
constexpr float kRelative = 1.0f / 128;

}  // namespace

PrefillChoice ChoosePrefill(int major, int minor, const std::string& gpu,
                            absl::FunctionRef<absl::Status()> prove) {
  if (!HasWgmma(major, minor)) return {};
  const absl::Status proof = prove();
  if (proof.ok()) return {PrefillKernel::kWgmma, ""};
  return {
      PrefillKernel::kMma,
      fmt::format("GPU {}: the prefill kernel for its tensor cores (wgmma) failed its test at start, and the "
                  "one for all GPUs (mma) is used: {}. Results are right; please report this line with the "
                  "output of nvidia-smi as an issue",
                  gpu, std::string(proof.message()))};
}

absl::Status Agree(std::span<const float> mma, std::span<const float> wgmma, const std::string& what) {
  BATON_CHECK_EQ(mma.size(), wgmma.size());
  size_t wrong = 0, worst = 0;
  float most = 0;
  for (size_t i = 0; i < mma.size(); ++i) {
    const float difference = std::abs(mma[i] - wgmma[i]);
    // Written so that NaN is wrong, on either side.
    if (std::isfinite(mma[i]) && difference <= kAbsolute + kRelative * std::abs(mma[i])) continue;
    // The first NaN stays the worst.
    if (wrong++ == 0 || (!std::isnan(most) && !(difference <= most))) most = difference, worst = i;
  }
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{}: {} of {} values differ, the worst, at {}, is {} and not {}",
                                         what, wrong, mma.size(), worst, wgmma[worst], mma[worst]));
}

}  // namespace baton::kernels::cuda
