#include <fmt/format.h>

#include "engine/kernels/collective.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels {

absl::StatusOr<std::unique_ptr<Kernels>> MakeKernels(std::string_view name, int threads,
                                                     const CudaOptions& cuda, device::CoreShare* cores) {
  if (name == "reference") return MakeReferenceKernels();
  if (name == "cpu") return MakeCpuKernels({.threads = threads, .isa = "", .cores = cores});
  if (name == "cuda") return MakeCudaKernels(cuda);
  return absl::InvalidArgumentError(fmt::format("unknown backend \"{}\": use cpu, cuda or reference", name));
}

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeGroup(std::span<Kernels* const> ranks) {
  if (!ranks.front()->memory().host()) return MakeCudaGroup(ranks);
  return MakeInProcessGroup(static_cast<int>(ranks.size()));
}

}  // namespace baton::kernels
