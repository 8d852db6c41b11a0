// All-reduce over NCCL for the ranks of one process: one communicator per GPU, made together, used on each
// rank's own compute stream, so that sums take their place among its kernels and are captured with them.
// Apart from the links between workers, whose communicators live and die with their peers.
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <barrier>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/collective.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "engine/kernels/cuda/nccl_communicators.h"

namespace baton::kernels {
namespace {

absl::Status ToStatus(ncclResult_t result, std::string_view doing) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("{}: {} ({})", doing, ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

class NcclMember final : public Collective {
 public:
  NcclMember(std::shared_ptr<cuda::NcclCommunicators> group, cudaStream_t stream, int rank,
             std::shared_ptr<std::barrier<>> barrier, int ranks)
      : group_(std::move(group)),
        communicator_(group_->communicators()[static_cast<size_t>(rank)]),
        stream_(stream),
        rank_(rank),
        ranks_(ranks),
        barrier_(std::move(barrier)) {}
  // The first one to go ends the whole group, while the streams of all ranks are still there. Never in an
  // orderly way: that waits for all ranks, which end one after the other.
  ~NcclMember() override { group_->Abort(); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void AllReduce(Matrix matrix) override {
    const ncclDataType_t type = matrix.dtype == tensor::DType::kF32    ? ncclFloat32
                                : matrix.dtype == tensor::DType::kBF16 ? ncclBfloat16
                                                                       : ncclFloat16;
    // Rows and what lies between them: one call for the whole matrix.
    const auto values = static_cast<size_t>(matrix.rows * matrix.stride);
    const absl::Status sent = ToStatus(
        ncclAllReduce(matrix.data, matrix.data, values, type, ncclSum, communicator_, stream_), "all-reduce");
    BATON_CHECK(sent.ok()) << " " << sent.ToString();  // a rank that can't go on leaves the others waiting
  }
  void Barrier() override { barrier_->arrive_and_wait(); }

 private:
  const std::shared_ptr<cuda::NcclCommunicators> group_;
  const ncclComm_t communicator_;
  const cudaStream_t stream_;
  const int rank_;
  const int ranks_;
  const std::shared_ptr<std::barrier<>> barrier_;
};

// Values of the sums that a decode step and a prefill step have, roughly.
constexpr size_t kWarmUpValues[] = {size_t{8} << 10, size_t{1} << 20};

// NCCL takes its buffers and connects its ranks at a communicator's first sums: here, and not in a step, and
// before the KV pool takes what memory is left.
absl::Status WarmUp(std::span<const ncclComm_t> communicators, std::span<Kernels* const> ranks) {
  std::vector<device::Memory::Buffer> buffers;
  for (Kernels* kernels : ranks) {
    BATON_ASSIGN_OR_RETURN(
        buffers.emplace_back(),
        kernels->memory().Allocate(static_cast<int64_t>(std::ranges::max(kWarmUpValues) * sizeof(float))));
  }
  for (const size_t values : kWarmUpValues) {
    for (const ncclDataType_t type : {ncclFloat32, ncclBfloat16}) {
      BATON_RETURN_IF_ERROR(ToStatus(ncclGroupStart(), "a first sum"));
      for (size_t r = 0; r < ranks.size(); ++r) {
        BATON_RETURN_IF_ERROR(
            ToStatus(ncclAllReduce(buffers[r].get(), buffers[r].get(), values, type, ncclSum,
                                   communicators[r], static_cast<cuda::CudaKernels*>(ranks[r])->stream()),
                     "a first sum"));
      }
      BATON_RETURN_IF_ERROR(ToStatus(ncclGroupEnd(), "a first sum"));
    }
  }
  for (Kernels* kernels : ranks) {
    BATON_RETURN_IF_ERROR(device::cuda::ToStatus(
        cudaStreamSynchronize(static_cast<cuda::CudaKernels*>(kernels)->stream()), "a first sum"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeCudaGroup(std::span<Kernels* const> ranks) {
  std::vector<int> devices;
  for (Kernels* kernels : ranks) devices.push_back(static_cast<cuda::CudaKernels*>(kernels)->device());
  std::vector<ncclComm_t> communicators(ranks.size());
  BATON_RETURN_IF_ERROR(
      ToStatus(ncclCommInitAll(communicators.data(), static_cast<int>(ranks.size()), devices.data()),
               fmt::format("joining {} GPUs by NCCL", ranks.size())));
  const auto group = std::make_shared<cuda::NcclCommunicators>(std::move(communicators));
  BATON_RETURN_IF_ERROR(WarmUp(group->communicators(), ranks));
  const auto barrier = std::make_shared<std::barrier<>>(static_cast<std::ptrdiff_t>(ranks.size()));
  std::vector<std::unique_ptr<Collective>> members;
  for (size_t r = 0; r < ranks.size(); ++r) {
    members.push_back(std::make_unique<NcclMember>(group, static_cast<cuda::CudaKernels*>(ranks[r])->stream(),
                                                   static_cast<int>(r), barrier,
                                                   static_cast<int>(ranks.size())));
  }
  return members;
}

}  // namespace baton::kernels
