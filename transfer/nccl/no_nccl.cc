// Stands in for NCCL in a build without CUDA.
#include "transfer/nccl/open_nccl.h"

namespace baton::transfer {

absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl(std::span<device::Memory* const>) {
  return absl::FailedPreconditionError(
      "--link nccl: this build has no NCCL: configure it with cmake --preset cuda, or use --link host");
}

}  // namespace baton::transfer
