// OpenNccl: NCCL and the payloads that go with it, as the link of one worker uses them. Which definition a
// binary links decides what it opens: a build with CUDA has the real one (target nccl_open), a build without
// returns an error that says so, and the workers of the end-to-end tests have one that connects processes
// over sockets (tests/fakes).
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/device/memory.h"
#include "transfer/nccl/nccl_api.h"
#include "transfer/nccl/payload.h"

namespace baton::transfer {

class Nccl {
 public:
  virtual ~Nccl() = default;
  // Both valid as long as this.
  virtual NcclApi Api() = 0;
  virtual Payload& payload() = 0;
  // The library's version: 22809 is 2.28.9. It joins no other one.
  virtual int version() const = 0;
  // Thread blocks of the GPU that a pair occupies while it moves something.
  virtual int channels() const = 0;
};

// `ranks`: where each rank of the worker's engine keeps its KV; they outlive what is returned.
// FAILED_PRECONDITION says why this build or this machine can't.
using NcclOpener =
    std::function<absl::StatusOr<std::unique_ptr<Nccl>>(std::span<device::Memory* const> ranks)>;
absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl(std::span<device::Memory* const> ranks);

}  // namespace baton::transfer
