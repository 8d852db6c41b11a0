// OpenUcx: UCX and the payloads that go with it, as the link of one worker uses them. As with NCCL
// (nccl/open_nccl.h), the linker chooses the definition: a build that found UCX's headers has the real one,
// for KV in host memory and, with CUDA, for KV on GPUs; another build returns an error that says so.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/device/memory.h"
#include "transfer/nccl/payload.h"
#include "transfer/ucx/fabric.h"

namespace baton::transfer {

struct Ucx {
  std::unique_ptr<Payload> payload;
  std::unique_ptr<Fabric> fabric;
  // Where payloads lie, "host" or "cuda": they differ in their checksums.
  std::string place;
};

// `ranks`: where each rank of the worker's engine keeps its KV; they outlive what is returned.
// FAILED_PRECONDITION says why this build or this machine can't.
using UcxOpener = std::function<absl::StatusOr<Ucx>(std::span<device::Memory* const> ranks)>;
absl::StatusOr<Ucx> OpenUcx(std::span<device::Memory* const> ranks);

}  // namespace baton::transfer
