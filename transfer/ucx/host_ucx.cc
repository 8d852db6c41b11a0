// UCX for KV in host memory.
#include <algorithm>

#include "common/base/status.h"
#include "transfer/ucx/open_ucx.h"
#include "transfer/ucx/ucx_fabric.h"

namespace baton::transfer {

absl::StatusOr<Ucx> OpenUcx(std::span<device::Memory* const> ranks) {
  if (!std::ranges::all_of(ranks, [](const device::Memory* memory) { return memory->host(); })) {
    return absl::FailedPreconditionError(
        "--link ucx: KV on GPUs needs a build with CUDA (cmake --preset cuda): use --link host");
  }
  Ucx ucx;
  BATON_ASSIGN_OR_RETURN(ucx.fabric, UcxFabric::Create(false));
  ucx.payload = MakeHostPayload();
  ucx.place = "host";
  return ucx;
}

}  // namespace baton::transfer
