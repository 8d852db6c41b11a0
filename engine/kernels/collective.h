// Collective: what the ranks of a tensor-parallel group do together. One level deep: in one process
// (InProcessGroup, for host memory), and over NCCL (kernels/cuda). Each rank calls from its own engine
// thread, all ranks in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels {

class Collective {
 public:
  // No recorded step uses any member of the group any more (Kernels::ForgetRecordings): NCCL would wait for
  // it forever, and over NCCL a group ends with its first member.
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // matrix = the sum of all ranks' matrices, the same bits on every rank. Issued in the order of the
  // rank's kernels.
  virtual void AllReduce(Matrix matrix) = 0;
  // values[i] = the largest of all ranks' values[i], or their sum. In host memory; groups of GPUs refuse it.
  virtual void AllMax(std::span<int32_t> values) { BATON_CHECK(values.empty()); }
  virtual void AllSum(std::span<int32_t> values) { BATON_CHECK(values.empty()); }
  // Returns once all ranks have called: what each issued before is ordered before what any issues after, as
  // far as the host sees.
  virtual void Barrier() = 0;
};

// The members of a group of `ranks` in this process, for float32 matrices in host memory. Sums are taken in
// the order of ranks, so they are the same however threads run.
std::vector<std::unique_ptr<Collective>> MakeInProcessGroup(int ranks);

// The same over NCCL, one GPU per rank. FAILED_PRECONDITION if this build has no CUDA.
absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeCudaGroup(std::span<Kernels* const> ranks);

// The group for what `ranks` compute with. Kernels outlive it.
absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeGroup(std::span<Kernels* const> ranks);

}  // namespace baton::kernels
