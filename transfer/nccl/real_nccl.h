// The NCCL that links use on GPUs: non-blocking communicators of two ranks, each with few channels so that it
// takes little memory and few multiprocessors, each on a stream of its own: on a common one a transfer whose
// peer hangs would hold up all others, and two senders that serve two receivers in different orders would
// wait for each other. NCCL promises progress to transfers on several streams as long as all of them fit on
// the GPU at once: `channels` times the link's most pairs, of 108 multiprocessors or more. A group of
// transfers is one launch. At most one per process and GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transfer/nccl/nccl_api.h"

namespace baton::transfer {

struct RealNcclOptions {
  int device = 0;
  // Thread blocks that NCCL may use per communicator, the same at both ends: NCCL does not compare them.
  int channels = 2;
};

class RealNccl {
 public:
  static absl::StatusOr<std::unique_ptr<RealNccl>> Create(const RealNcclOptions& options);
  ~RealNccl();

  // Valid as long as this.
  NcclApi Api();
  // Version of the running library, by ncclGetVersion.
  int version() const;

 private:
  struct Impl;
  explicit RealNccl(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::transfer
