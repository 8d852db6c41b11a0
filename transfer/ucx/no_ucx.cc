// Stands in for UCX in a build that found no headers of it.
#include "transfer/ucx/open_ucx.h"

namespace baton::transfer {

absl::StatusOr<Ucx> OpenUcx(std::span<device::Memory* const>) {
  return absl::FailedPreconditionError(
      "--link ucx: this build has no UCX: install libucx-dev and configure again, or use --link host");
}

}  // namespace baton::transfer
