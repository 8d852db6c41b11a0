// Stands in for the backend in a build without CUDA.
#include "engine/kernels/collective.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels {

namespace {

absl::Status NoCuda() {
  return absl::FailedPreconditionError("this build has no CUDA: configure it with cmake --preset cuda");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernels>> MakeCudaKernels(const CudaOptions&) { return NoCuda(); }

absl::Status ProveCudaPrefill(int) { return NoCuda(); }

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeCudaGroup(std::span<Kernels* const>) {
  return NoCuda();
}

}  // namespace baton::kernels
