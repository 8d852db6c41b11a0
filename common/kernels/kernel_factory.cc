#include "common/kernels/kernels.h"
#include "fmt/format.h"

namespace baton::kernels {

absl::StatusOr<std::unique_ptr<Kernels>> MakeKernels(std::string_view name, int threads) {
  if (name == "reference") return MakeReferenceKernels();
  if (name == "cpu") return MakeCpuKernels({.threads = threads, .isa = ""});
  return absl::InvalidArgumentError(fmt::format("unknown backend \"{}\": use cpu or reference", name));
}

}  // namespace baton::kernels
