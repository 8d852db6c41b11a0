#include "absl/strings/str_cat.h"
#include "common/kernels/kernels.h"

namespace baton::kernels {

absl::StatusOr<std::unique_ptr<Kernels>> MakeKernels(std::string_view name, int threads) {
  if (name == "reference") return MakeReferenceKernels();
  return absl::InvalidArgumentError(absl::StrCat("unknown backend \"", name, "\": use reference"));
}

}  // namespace baton::kernels
