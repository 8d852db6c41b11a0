// The NCCL that links use on GPUs: non-blocking communicators of two ranks, each with few channels so that it
// takes little memory and few multiprocessors, on a stream of the link's own. At most one per process and
// GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/transfer/nccl/nccl_api.h"

namespace baton::transfer {

struct RealNcclOptions {
  int device = 0;
  // Thread blocks that NCCL may use per communicator. The default leaves nearly the whole GPU to the engine.
  int channels = 4;
};

class RealNccl {
 public:
  static absl::StatusOr<std::unique_ptr<RealNccl>> Create(const RealNcclOptions& options);
  ~RealNccl();

  // Valid as long as this.
  NcclApi Api();
  // The link's stream (a cudaStream_t), for CudaPayload to put in order.
  void* stream() const;

 private:
  struct Impl;
  explicit RealNccl(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::transfer
